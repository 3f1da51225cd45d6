/* Self-test: a march over memory, its address lines, every element of the array. What is wrong is told by registers. */
#include "selftest.h"

#ifdef __clang__ /* it runs once: small, not quick */
#pragma clang attribute push(__attribute__((cold, minsize)), apply_to = function)
#endif

#define CHECK RL_SWEEPCOMMAND_CHECK
#define WRITE RL_SWEEPCOMMAND_WRITE
#define UNKNOWN 0xFFFFu
#define ROWS RL_ROWS
#define ROW_BEATS (RL_SELFTEST_ROW_BYTES / RL_BEAT_BYTES)
#define WORDS_PER_BEAT (RL_BEAT_BYTES / 4)
#define BEAT_SHIFT 5
#define RESUME (1u << 8)

/* Ways a test can end. */
enum { WELL, WRONG };

uint32_t selftest_cycles[RL_TILES];

/* The cycle after which nothing more is begun, and whether that has come. */
static uint32_t limit, late;

static const uint32_t image[] = {RL_SELFTEST_IMAGE};
static const uint32_t addresses[] = {RL_SELFTEST_IMAGE_ADDRESSES};
static const uint32_t expectation[] = {RL_SELFTEST_EXPECTED};

static uint32_t now(void) { return get(REGISTER(CYCLE_LOW)); }

#if RL_SELFTEST_ADDRESS_BITS > 32
typedef uint64_t place_t;
#define UPPER(place) ((uint32_t)((place) >> 32))
#else
typedef uint32_t place_t;
#define UPPER(place) 0u
#endif

/* The core has no multiplier: everything that is multiplied here is a power of two. */
static place_t memory_of(uint32_t tile) { return (place_t)tile << RL_SELFTEST_MEMORY_SHIFT; }

/* Tells what is wrong, once and for all; the upper half of the address is told by the caller. */
static int wrong(uint32_t test, uint32_t tile, uint32_t element, uint32_t address, uint32_t expected, uint32_t found)
{
    if (late)
        return WRONG;
    put(MAILBOX(SELFTEST_ELEMENT), element);
    put(MAILBOX(SELFTEST_ADDRESS_LOW), address);
    put(MAILBOX(SELFTEST_EXPECTED), expected);
    put(MAILBOX(SELFTEST_FOUND), found);
    put(MAILBOX(SELFTEST_END), now());
    put(MAILBOX(SELFTEST), RL_SELFTEST_FAILED | test << 8 | tile << 16);
    return WRONG;
}

static void go(place_t address, uint32_t step, uint32_t count, uint32_t command)
{
    put(SWEEP(ADDRESS_LOW), address);
    if (RL_SELFTEST_ADDRESS_BITS > 32)
        put(SWEEP(ADDRESS_HIGH), UPPER(address));
    put(SWEEP(STEP), step);
    put(SWEEP(COUNT), count);
    put(SWEEP(COMMAND), command);
}

/* Goes over memory; false where something is not as expected, or there is no answer. */
static int sweep(place_t address, uint32_t step, uint32_t count, uint32_t command)
{
    uint32_t start, status;

    start = now();
    late = late || start > limit;
    if (late)
        return 0;
    go(address, step, count, command);
    while ((status = get(SWEEP(STATUS))) & RL_SWEEPSTATUS_BUSY)
        if (now() - start > RL_SELFTEST_PATIENCE + (count << (limit == ~0u ? 6 : 3)))
            return 0;
    return !(status & RL_SWEEPSTATUS_BAD);
}

/* The same where all words of the pattern are `pattern`: tells of the first one that is not as expected. */
static int test(uint32_t code, uint32_t tile, place_t address, uint32_t step, uint32_t count, uint32_t command,
                uint32_t pattern)
{
    uint32_t i, bad;

    put(SWEEP(FILL), pattern);
    if (sweep(address, step, count, command))
        return WELL;
    bad = get(SWEEP(BAD_LOW));
    if (command & RL_SWEEPCOMMAND_ADDRESSED)
        pattern ^= bad / RL_BEAT_BYTES | get(SWEEP(BAD_HIGH)) << (32 - BEAT_SHIFT);
    for (i = 0; i < WORDS_PER_BEAT - 1 && get(SWEEP(WORD) + 4 * i) == pattern;)
        i++;
    bad += 4 * i;
    put(MAILBOX(SELFTEST_ADDRESS_HIGH), get(SWEEP(BAD_HIGH)));
    return wrong(code, tile, UNKNOWN | UNKNOWN << 16, bad, pattern, get(SWEEP(WORD) + 4 * i));
}

/* Each bit of each word as 0 and as 1, after a neighbour has changed: MATS+, and zeros at the end. */
static int march(uint32_t tile, place_t address, place_t last, uint32_t step, uint32_t count)
{
    const uint32_t pattern = 0x55555555, both = CHECK | WRITE | RL_SWEEPCOMMAND_COMPLEMENT;

    if (test(RL_TEST_MEMORY, tile, address, step, count, WRITE, pattern)
        || test(RL_TEST_MEMORY, tile, address, step, count, both, pattern)
        || test(RL_TEST_MEMORY, tile, last, -step, count, both, ~pattern)
        || test(RL_TEST_MEMORY, tile, address, step, count, CHECK | WRITE | RL_SWEEPCOMMAND_ZERO, pattern))
        return WRONG;
    return WELL;
}

/* Every address line of every port: two addresses that differ in one line hold their own values. */
static int address_lines(uint32_t tile)
{
    const uint32_t walk = RL_SWEEPCOMMAND_WALK | RL_SWEEPCOMMAND_ADDRESSED | WRITE;
    uint32_t port;

    for (port = 0; port < RL_SELFTEST_PORTS; port++) {
        uint32_t step = port ? RL_SELFTEST_PORTS << RL_SELFTEST_INTERLEAVE_SHIFT : RL_BEAT_BYTES, count = 1;
        place_t reach, base = memory_of(tile) + (port << RL_SELFTEST_INTERLEAVE_SHIFT);

        for (reach = step; reach < RL_MEMORY_BYTES; reach <<= 1)
            count++;
        if (test(RL_TEST_ADDRESS, tile, base, step, count, walk, 0)
            || test(RL_TEST_ADDRESS, tile, base, step, count, walk | CHECK | RL_SWEEPCOMMAND_ZERO, 0))
            return WRONG;
    }
    return WELL;
}

static int memory(uint32_t tile)
{
    return march(tile, memory_of(tile), memory_of(tile) + ((RL_SELFTEST_PORTS - 1) << RL_SELFTEST_INTERLEAVE_SHIFT),
                 1u << RL_SELFTEST_INTERLEAVE_SHIFT, RL_SELFTEST_PORTS) ? WRONG : address_lines(tile);
}

/* Puts the array's job into a tile's memory: the first tile's for all of them at once, as far as the unit's steps
 * reach, then into the others what is their own, the beats with addresses. */
static int place(uint32_t tile)
{
    const uint32_t at_once = RL_SELFTEST_MEMORY_SHIFT <= 30 ? RL_TILES : 1;
    const uint32_t *next = addresses, *word = image;
    uint32_t i;
    place_t base = memory_of(tile), at;

    for (at = base; word < image + RL_SELFTEST_WORDS; at += RL_BEAT_BYTES) {
        if (tile && at_once > 1 && (next == addresses + RL_SELFTEST_ADDRESSES
                                    || image + *next >= word + WORDS_PER_BEAT)) {
            word += WORDS_PER_BEAT;
            continue;
        }
#pragma GCC unroll 8
        for (i = 0; i < WORDS_PER_BEAT; i++)
            put(SWEEP(WORD) + 4 * i, word[i]);
        word += WORDS_PER_BEAT;
        for (; next < addresses + RL_SELFTEST_ADDRESSES && image + *next < word; next++) {
            place_t sum = base + image[*next];
            i = SWEEP(WORD) + (4 * *next & (RL_BEAT_BYTES - 1));
            put(i, sum);
            put(i + 4, UPPER(sum));
        }
        go(at, 1u << (RL_SELFTEST_MEMORY_SHIFT & 31), tile ? 1 : at_once, WRITE);
        while (get(SWEEP(STATUS)) & RL_SWEEPSTATUS_OPEN)
            if (now() > RL_SELFTEST_LAST)
                return 0;
    }
    return sweep(at, 0, 0, WRITE); /* the last one has been written, too */
}

/* Runs the job at `address` on a tile, through queue 0 as a host would; false where it does not end well. */
static int run(uint32_t tile, place_t address)
{
    uint32_t start = now(), well = 1;

    put(QUEUE_REGISTER(0, RING_LOW), address);
    put(QUEUE_REGISTER(0, RING_HIGH), UPPER(address));
    put(QUEUE_REGISTER(0, WINDOW_LIMIT_HIGH), ~0u);
    put(QUEUE_REGISTER(0, POLICY), 1u << (16 + tile));
    put(QUEUE_REGISTER(0, RING_SIZE), 1);
    put(QUEUE_REGISTER(0, COMMAND), 1);
    put(QUEUE_REGISTER(0, TAIL), 1);
    while (!(get(PORT(READY)) & 1) && well)
        well = now() - start < RL_SELFTEST_PATIENCE;
    if (well)
        put(PORT(START), tile << 8);
    while (!(get(TILE_REGISTER(tile, SLOTS)) & 3) && well)
        well = now() - start < RL_SELFTEST_PATIENCE;
    if (!well) /* the host can still use the other tiles */
        put(REGISTER(ABORT), 1u << tile);
    put(TILE_REGISTER(tile, SLOT_COMMAND), RESUME | (get(TILE_REGISTER(tile, SLOTS)) & 3));
    put(QUEUE_REGISTER(0, RING_SIZE), 0);
    put(QUEUE_REGISTER(0, WINDOW_LIMIT_HIGH), 0);
    put(QUEUE_REGISTER(0, COMMAND), 1);
    put(REGISTER(SNAPSHOT), 1u << tile);
    selftest_cycles[tile] = get(TILE_REGISTER(tile, COUNTER_CYCLES_LOW));
    return well && (get(TILE_REGISTER(tile, STATUS)) >> 8 & 0xFF) == RL_STATUS_DONE;
}

/* Where row 0 of a pattern's results lies. */
static place_t result(uint32_t tile, uint32_t pattern)
{
    return memory_of(tile) + RL_SELFTEST_RESULTS + (pattern ? (ROWS + 1) * RL_SELFTEST_ROW_BYTES : 0);
}

static int right(place_t address, uint32_t beats, uint32_t pattern)
{
    put(SWEEP(FILL), pattern);
    return sweep(address, RL_BEAT_BYTES, beats, CHECK);
}

static uint32_t word_at(place_t address)
{
    sweep(address & -(place_t)RL_BEAT_BYTES, 0, 1, RL_SWEEPCOMMAND_CAPTURE);
    return get(SWEEP(WORD) + (address & (RL_BEAT_BYTES - 4)));
}

/* Which element is at fault; see hw/selftest.py. */
static int locate(uint32_t tile, uint32_t pattern)
{
    uint32_t zero_bad, row = 0, i, word, want, column, leftmost = UNKNOWN, best = 0, found;
    place_t at = result(tile, pattern);

    limit = RL_SELFTEST_LAST;
    zero_bad = !right(at, ROW_BEATS, 0);
    while (!zero_bad && ++row <= ROWS && right(at += RL_SELFTEST_ROW_BYTES, ROW_BEATS, expectation[pattern]))
        ;
    want = row ? expectation[pattern] : 0;
    /* The leftmost column: a wrong activation goes on to those on the right. */
    for (i = column = 0; i < ROW_BEATS; i++) {
        right(at + i * RL_BEAT_BYTES, 1, want); /* if not, the words are what was found */
        for (word = 0; word < WORDS_PER_BEAT; word++, column = column + 1 < RL_COLUMNS ? column + 1 : 0)
            if (get(SWEEP(WORD) + 4 * word) != want && column < leftmost) {
                leftmost = column;
                best = (i * WORDS_PER_BEAT + word) * 4;
            }
    }
    at += best;
    found = word_at(at);
    if (leftmost == UNKNOWN) /* right when looked at again */
        row = ROWS + 1;
    if (zero_bad) {
        place_t below = at;
        while (++row <= ROWS && word_at(below += RL_SELFTEST_ROW_BYTES) != expectation[pattern])
            ;
    }
    if (late) {
        late = 0;
        leftmost = UNKNOWN;
        row = ROWS + 1;
    }
    put(MAILBOX(SELFTEST_ADDRESS_HIGH), UPPER(at));
    return wrong(RL_TEST_ARRAY, tile, (row <= ROWS ? ROWS - row : UNKNOWN) | leftmost << 16, at, want, found);
}

static int array(uint32_t tile)
{
    place_t base = memory_of(tile);
    uint32_t pattern;

    put(MAILBOX(SELFTEST_ADDRESS_HIGH), UPPER(base));
    if (!place(tile) || !run(tile, base))
        return wrong(RL_TEST_ARRAY, tile, UNKNOWN | UNKNOWN << 16, base, RL_STATUS_DONE,
                     get(TILE_REGISTER(tile, STATUS)) >> 8 & 0xFFFF);
    for (pattern = 0; pattern < sizeof expectation / sizeof *expectation; pattern++)
        if (!right(result(tile, pattern), ROW_BEATS, 0)
            || !right(result(tile, pattern) + RL_SELFTEST_ROW_BYTES, ROWS * ROW_BEATS, expectation[pattern]))
            return late ? WRONG : locate(tile, pattern);
    put(SWEEP(FILL), 0);
    return sweep(base, RL_BEAT_BYTES, (RL_SELFTEST_SIZE + RL_BEAT_BYTES - 1) / RL_BEAT_BYTES, WRITE) ? WELL : WRONG;
}

static int (*const steps[])(uint32_t tile) = {memory, array};

static int unwanted(void)
{
    return get(MAILBOX(PENDING)) && (get(MAILBOX(REQUEST)) & 0xFF) == RL_REQUEST_SKIP;
}

void selftest_power_on(void)
{
    uint32_t tile, step, state = RL_SELFTEST_PASSED;

    limit = RL_SELFTEST_BEGIN;
    for (step = 0; step < sizeof steps / sizeof *steps; step++)
        for (tile = 0; tile < RL_TILES; tile++) {
            if (unwanted()) {
                state = RL_SELFTEST_SKIPPED;
                goto end;
            }
            if (steps[step](tile) == WRONG) {
                if (!late)
                    return;
                state = RL_SELFTEST_INCOMPLETE;
                goto end;
            }
        }
end:
    put(MAILBOX(SELFTEST_END), now());
    put(MAILBOX(SELFTEST), state);
}

void selftest_march(uint32_t tile, uint32_t first, uint32_t count)
{
    place_t address = memory_of(tile) + ((place_t)first << BEAT_SHIFT);
    place_t last = address + ((place_t)(count - 1) << BEAT_SHIFT);

    limit = ~0u;
    late = 0;
    put(MAILBOX(SELFTEST), RL_SELFTEST_RUNNING);
    if (march(tile, address, last, RL_BEAT_BYTES, count) == WRONG || address_lines(tile) == WRONG)
        return;
    put(MAILBOX(SELFTEST_END), now());
    put(MAILBOX(SELFTEST), RL_SELFTEST_PASSED);
}

#ifdef __clang__
#pragma clang attribute pop
#endif
