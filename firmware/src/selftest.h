/* Self-test of memory and array. */
#ifndef SELFTEST_H
#define SELFTEST_H

#include "hardware.h"

/* Cycles of a tile that its self-test took. */
extern uint32_t selftest_cycles[RL_TILES];

/* The short test, unless the host says that it does not want it. */
void selftest_power_on(void);

/* March over `count` beats of a tile's memory from beat `first` on. */
void selftest_march(uint32_t tile, uint32_t first, uint32_t count);

#endif
