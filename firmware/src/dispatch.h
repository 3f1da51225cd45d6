/* Job queues onto tiles. */
#ifndef DISPATCH_H
#define DISPATCH_H

#include "hardware.h"

/* Jobs of each tile that have ended since reset, and those of them that did not end well. */
extern uint32_t tile_jobs[RL_TILES], tile_faults[RL_TILES];

/* One turn: collect what has ended, abort what the host wants aborted, start what can start. */
void dispatch_turn(void);

#endif
