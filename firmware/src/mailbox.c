/* Requests of the host: telemetry, and self-tests that it starts. */
#include "mailbox.h"

#include "dispatch.h"
#include "selftest.h"

#define ANSWER(number) (MAILBOX(ANSWER0) + 4 * (number))

static void telemetry(uint32_t tile)
{
    put(REGISTER(SNAPSHOT), 1u << tile);
    put(ANSWER(0), get(REGISTER(CYCLE_LOW)));
    put(ANSWER(1), get(REGISTER(CYCLE_HIGH)));
    put(ANSWER(2), tile_jobs[tile]);
    put(ANSWER(3), tile_faults[tile]);
    uint32_t low = get(TILE_REGISTER(tile, COUNTER_CYCLES_LOW)), own = selftest_cycles[tile];
    put(ANSWER(4), low - own);
    put(ANSWER(5), get(TILE_REGISTER(tile, COUNTER_CYCLES_HIGH)) - (low < own));
}

void mailbox_turn(void)
{
    uint32_t request, tile;

    if (!get(MAILBOX(PENDING)))
        return;
    request = get(MAILBOX(REQUEST));
    tile = request >> 8 & 0xFF;
    if (tile < RL_TILES) {
        if ((request & 0xFF) == RL_REQUEST_TELEMETRY)
            telemetry(tile);
        else if ((request & 0xFF) == RL_REQUEST_MARCH)
            selftest_march(tile, get(MAILBOX(ARGUMENT0)), get(MAILBOX(ARGUMENT1)));
    }
    put(MAILBOX(PENDING), 0);
}
