/* Job queues onto tiles. */
#ifndef DISPATCH_H
#define DISPATCH_H

/* One turn: collect what has ended, abort what the host wants aborted, start what can start. */
void dispatch_turn(void);

#endif
