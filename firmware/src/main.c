/* Firmware of the management core. */
#include "dispatch.h"

int main(void)
{
    for (;;) {
        __asm__ volatile("wfi"); /* passes at once while there is something to do */
        dispatch_turn();
    }
}
