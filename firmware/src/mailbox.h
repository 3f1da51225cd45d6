/* What the host asks of the firmware. */
#ifndef MAILBOX_H
#define MAILBOX_H

/* Answers a request, if there is one. */
void mailbox_turn(void);

#endif
