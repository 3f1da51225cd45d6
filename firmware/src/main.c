/* Firmware of the management core. */
#include "dispatch.h"
#include "mailbox.h"
#include "selftest.h"

int main(void)
{
    selftest_power_on();
    for (;;) {
        __asm__ volatile("wfi"); /* passes at once while there is something to do */
        dispatch_turn();
        mailbox_turn();
    }
}
