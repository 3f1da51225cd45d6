/* Job queues onto tiles: strict priorities, two jobs a tile, faults that stop their own queue alone. */
#include "dispatch.h"

#include "hardware.h"

#define SLOTS 2

#define SLOT_FAILED (1u << 8)
#define SLOT_HELD (1u << 10)
#define COMMAND_RESUME (1u << 8)
#define COMMAND_CANCEL (1u << 9)
#define COMMAND_HOLD (1u << 10)

#define STOPPED RL_QUEUESTATUS_STOPPED
#define QUIET RL_QUEUESTATUS_QUIET

/* The queues of the jobs that a tile holds, the running one first. */
static uint8_t held[RL_TILES][SLOTS];
static uint8_t count[RL_TILES];
static uint8_t in_tiles[RL_QUEUES];
/* What the host sees of a queue. */
static uint32_t status[RL_QUEUES];
static uint32_t jobs[RL_QUEUES];
static uint32_t faults[RL_QUEUES];
uint32_t tile_jobs[RL_TILES], tile_faults[RL_TILES];

/* A stopped queue is quiet once none of its jobs is in a tile: then those that have no completion record did not run. */
static inline void show(uint32_t queue)
{
    if (status[queue] & STOPPED) {
        if (!in_tiles[queue])
            status[queue] |= QUIET;
        put(PORT_RESULT(queue, STATUS), status[queue]);
    }
}

/* Tells the host of a queue. */
static inline void report(uint32_t queue)
{
    show(queue);
    put(PORT(NOTIFY), 1u << queue);
}

static void remove_job(uint32_t tile, uint32_t slot)
{
    in_tiles[held[tile][slot]]--;
    if (slot == 0)
        held[tile][0] = held[tile][1];
    count[tile]--;
}

/* What goes on once a job did not end well: kept apart, and out of line, so that the usual way stays short. */
#define RARE __attribute__((noinline, cold))

/* Stops the queue of the job that ended last on a tile. Returns what else the tile's slots must be told. */
static RARE uint32_t fail(uint32_t tile, uint32_t queue)
{
    put(PORT_RESULT(queue, FAULTS), ++faults[queue]);
    tile_faults[tile]++;
    put(PORT_RESULT(queue, FAULT_COMMAND), get(TILE_REGISTER(tile, FAULT_COMMAND)));
    put(PORT_RESULT(queue, FAULT_ADDRESS_LOW), get(TILE_REGISTER(tile, FAULT_ADDRESS_LOW)));
    put(PORT_RESULT(queue, FAULT_ADDRESS_HIGH), get(TILE_REGISTER(tile, FAULT_ADDRESS_HIGH)));
    status[queue] = STOPPED | (get(TILE_REGISTER(tile, STATUS)) & 0xFFFF00) | tile << 24;
    put(PORT_RESULT(queue, STATUS), status[queue]);
    if (!count[tile] || held[tile][0] != queue)
        return 0;
    remove_job(tile, 0);
    return COMMAND_CANCEL;
}

/* Takes note of the jobs of a tile that have ended. `resume`: COMMAND_RESUME where the next one may go. */
static void collect(uint32_t tile, uint32_t resume)
{
    uint32_t slots = get(TILE_REGISTER(tile, SLOTS));
    uint32_t ended = slots & 3, left, command = ended;

    for (left = ended; left; left--) {
        uint32_t queue = held[tile][0];
        put(PORT_RESULT(queue, JOBS), ++jobs[queue]);
        tile_jobs[tile]++;
        remove_job(tile, 0);
        if (left == 1 && slots & SLOT_FAILED)
            command |= fail(tile, queue);
        report(queue);
    }
    if (ended && slots & SLOT_HELD)
        command |= resume;
    if (command)
        put(TILE_REGISTER(tile, SLOT_COMMAND), command);
}

/* Stops a queue at once and ends its jobs. While a tile is held nothing new starts there, so that the abort hits the
 * job that is meant. */
static RARE void abort_queue(uint32_t queue)
{
    uint32_t tile;

    status[queue] = STOPPED | RL_STATUS_ABORTED << 8 | RL_CODE_ABORT << 16;
    put(PORT_RESULT(queue, STATUS), status[queue]);
    for (tile = 0; tile < RL_TILES; tile++) {
        uint32_t command = COMMAND_RESUME;

        put(TILE_REGISTER(tile, SLOT_COMMAND), COMMAND_HOLD);
        while (get(TILE_REGISTER(tile, SLOTS)) & 3)
            collect(tile, 0);
        if (count[tile] == 2 && held[tile][1] == queue) {
            remove_job(tile, 1);
            command |= COMMAND_CANCEL;
        }
        if (count[tile] && held[tile][0] == queue) {
            if (get(REGISTER(BUSY)) >> tile & 1) {
                put(REGISTER(ABORT), 1u << tile);
                command &= ~COMMAND_RESUME; /* when the job's end is collected */
            } else if (!(get(TILE_REGISTER(tile, SLOTS)) & 3)) {
                remove_job(tile, 0); /* it waits in the second slot, the one before it has just ended */
                command |= COMMAND_CANCEL;
            }
        }
        put(TILE_REGISTER(tile, SLOT_COMMAND), command);
    }
    show(queue);
    put(PORT(ABORTS), 1u << queue); /* the host may restart the queue from now on: nothing is written behind this */
    put(PORT(NOTIFY), 1u << queue);
}

/* The tile among `tiles` with the fewest jobs; RL_TILES if each has two, one of which has ended just now. */
static uint32_t choose(uint32_t tiles)
{
    uint32_t tile, best = RL_TILES, fewest = SLOTS;

    for (tile = 0; tile < RL_TILES; tile++)
        if (tiles >> tile & 1 && count[tile] < fewest) {
            fewest = count[tile];
            best = tile;
        }
    return best;
}

static void start(uint32_t queue, uint32_t tile)
{
    put(PORT(START), queue | tile << 8);
    held[tile][count[tile]++] = queue;
    in_tiles[queue]++;
    status[queue] = 0; /* the host has opened it again, if it was stopped */
}

void dispatch_turn(void)
{
    uint32_t tiles = get(PORT(TILES)), bits, i, ready;

    for (i = 0, bits = tiles & 0xFFFF; bits; i++, bits >>= 1)
        if (bits & 1)
            collect(i, COMMAND_RESUME);
    for (i = 0, bits = get(PORT(ABORTS)); bits; i++, bits >>= 1)
        if (bits & 1)
            abort_queue(i);
    ready = get(PORT(READY));
    if (ready) {
        uint32_t best = 0, policy = 0, room;

        for (i = 0, bits = ready; bits; i++, bits >>= 1)
            if (bits & 1) {
                uint32_t own = get(QUEUE_REGISTER(i, POLICY));
                if (!policy || (own & 0xFF) > (policy & 0xFF)) {
                    policy = own;
                    best = i;
                }
            }
        room = policy >> 16 & ~(get(PORT(TILES)) >> 16);
        i = choose(room);
        if (i < RL_TILES)
            start(best, i);
    }
}
