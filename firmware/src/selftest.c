/* Self-test: a march over memory, its address lines, every element of the array. What is wrong is told by registers. */
#include "selftest.h"

#ifdef __clang__ /* it runs once: small, not quick */
#pragma clang attribute push(__attribute__((cold, minsize)), apply_to = function)
#endif

#define CHECK RL_SWEEPCOMMAND_CHECK
#define WRITE RL_SWEEPCOMMAND_WRITE
#define TILES RL_SWEEPCOMMAND_TILES
#define EVERYWHERE (RL_SWEEPCOMMAND_PORTS | TILES)
#define UNKNOWN 0xFFFFu
#define NO_TILE 0xFFu
#define ROWS RL_ROWS
#define ROW_BEATS (RL_SELFTEST_ROW_BYTES / RL_BEAT_BYTES)
#define WORDS_PER_BEAT (RL_BEAT_BYTES / 4)
#define BEAT_SHIFT 5
#define RESUME (1u << 8)
#define EVER (~0u)

/* Ways a test can end. */
enum { WELL, WRONG };

uint32_t selftest_cycles[RL_TILES];

/* The cycle after which nothing more is begun or waited for; the state the test is given up in, or 0. */
static uint32_t limit, given_up;

static const uint32_t image[] = {RL_SELFTEST_IMAGE};
static const uint32_t addresses[] = {RL_SELFTEST_IMAGE_ADDRESSES};
static const uint32_t expectation[] = {RL_SELFTEST_EXPECTED};

static uint32_t now(void) { return get(REGISTER(CYCLE_LOW)); }

#if RL_SELFTEST_ADDRESS_BITS > 31 /* so that a shift by the size of a memory is one */
#define LONG 1
typedef uint64_t place_t;
#define UPPER(place) ((uint32_t)((place) >> 32))
#else
#define LONG 0
typedef uint32_t place_t;
#define UPPER(place) 0u
#endif

/* The core has no multiplier: everything that is multiplied here is a power of two. */
static place_t memory_of(uint32_t tile) { return (place_t)tile << RL_SELFTEST_MEMORY_SHIFT; }

static uint32_t tile_of(place_t address) { return address >> RL_SELFTEST_MEMORY_SHIFT; }

/* Tells what is wrong, once and for all; the upper half of the address is told by the caller. */
static int wrong(uint32_t test, uint32_t tile, uint32_t element, uint32_t address, uint32_t expected, uint32_t found)
{
    if (given_up)
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
    if (LONG)
        put(SWEEP(ADDRESS_HIGH), UPPER(address));
    put(SWEEP(STEP), step);
    put(SWEEP(COUNT), count);
    put(SWEEP(COMMAND), command);
}

/* Waits while the unit is `busy`; false where something is not as expected, there is no answer, or no more time. */
static int settle(uint32_t busy)
{
    uint32_t since = now(), before = 0, status, cycle;

    while ((status = get(SWEEP(STATUS))) & busy) {
        cycle = now();
        if (cycle > limit) {
            given_up = RL_SELFTEST_INCOMPLETE;
            return 0;
        }
        if (status != before) { /* it goes on */
            before = status;
            since = cycle;
        } else if (cycle - since > RL_SELFTEST_PATIENCE)
            return 0;
    }
    return !(status & RL_SWEEPSTATUS_BAD);
}

/* Goes over memory; false where something is not as expected, there is no answer, or it is not to be done. */
static int sweep(place_t address, uint32_t step, uint32_t count, uint32_t command)
{
    if (limit != EVER && get(MAILBOX(PENDING)) && (get(MAILBOX(REQUEST)) & 0xFF) == RL_REQUEST_SKIP)
        given_up = RL_SELFTEST_SKIPPED;
    else if (now() > limit)
        given_up = RL_SELFTEST_INCOMPLETE;
    if (given_up)
        return 0;
    go(address, step, count, command);
    return settle(RL_SWEEPSTATUS_BUSY);
}

static place_t bad_place(void)
{
    place_t low = get(SWEEP(BAD_LOW));
#if LONG
    low |= (place_t)get(SWEEP(BAD_HIGH)) << 32;
#endif
    return low;
}

/* Whether an access to a memory has no answer, nobody knows to which one. */
static int silent(void) { return get(SWEEP(STATUS)) & RL_SWEEPSTATUS_BUSY; }

static int no_answer(void) { return wrong(RL_TEST_MEMORY, NO_TILE, UNKNOWN | UNKNOWN << 16, 0, 0, 0); }

/* The same where all words of the pattern are `pattern`: tells of the first one that is not as expected. */
static int test(uint32_t code, place_t address, uint32_t step, uint32_t count, uint32_t command, uint32_t pattern)
{
    uint32_t i;
    place_t bad;

    put(SWEEP(FILL), pattern);
    if (sweep(address, step, count, command))
        return WELL;
    if (silent())
        return no_answer();
    bad = bad_place();
    if (command & RL_SWEEPCOMMAND_ADDRESSED)
        pattern ^= bad >> BEAT_SHIFT;
    for (i = 0; i < WORDS_PER_BEAT - 1 && get(SWEEP(WORD) + 4 * i) == pattern;)
        i++;
    put(MAILBOX(SELFTEST_ADDRESS_HIGH), UPPER(bad));
    return wrong(code, tile_of(bad), UNKNOWN | UNKNOWN << 16, bad + 4 * i, pattern,
                 get(SWEEP(WORD) + 4 * i));
}

/* Each bit of each word as 0 and as 1, after a neighbour has changed: MATS+, and zeros at the end. */
static int march(place_t address, place_t last, uint32_t count, uint32_t where)
{
    const uint32_t pattern = 0x55555555, both = CHECK | WRITE | RL_SWEEPCOMMAND_COMPLEMENT | where;

    return test(RL_TEST_MEMORY, address, RL_BEAT_BYTES, count, WRITE | where, pattern)
        || test(RL_TEST_MEMORY, address, RL_BEAT_BYTES, count, both, pattern)
        || test(RL_TEST_MEMORY, last, -RL_BEAT_BYTES, count, both, ~pattern)
        || test(RL_TEST_MEMORY, address, RL_BEAT_BYTES, count, CHECK | WRITE | RL_SWEEPCOMMAND_ZERO | where, pattern);
}

/* Every address line of every port: two addresses that differ in one line hold their own values. */
static int address_lines(place_t base, uint32_t where)
{
    const uint32_t walk = RL_SWEEPCOMMAND_WALK | RL_SWEEPCOMMAND_ADDRESSED | where, count = 1 + RL_SELFTEST_LINES;

    return test(RL_TEST_ADDRESS, base, RL_BEAT_BYTES, count, walk | WRITE, 0)
        || test(RL_TEST_ADDRESS, base, RL_BEAT_BYTES, count, walk | CHECK, 0)
        || test(RL_TEST_ADDRESS, base, RL_BEAT_BYTES, count, walk | WRITE | RL_SWEEPCOMMAND_ZERO, 0);
}

/* Puts the array's job into memory, beat by beat: the first tile's into all of them at once, and into the others what
 * is their own, where there are addresses in the beat. */
static int place(void)
{
    const uint32_t *next = addresses, *own, *word;
    uint32_t i, tile;
    place_t at = 0, base, sum;

    for (word = image; word < image + RL_SELFTEST_WORDS; word += WORDS_PER_BEAT, at += RL_BEAT_BYTES, next = own) {
#pragma GCC unroll 8
        for (i = 0; i < WORDS_PER_BEAT; i++)
            put(SWEEP(WORD) + 4 * i, word[i]);
        for (tile = 0; tile < RL_TILES; tile++) {
            base = memory_of(tile);
            for (own = next; own < addresses + RL_SELFTEST_ADDRESSES && image + *own < word + WORDS_PER_BEAT; own++) {
                sum = base + image[*own];
                i = SWEEP(WORD) + (4 * *own & (RL_BEAT_BYTES - 1));
                put(i, sum);
                put(i + 4, UPPER(sum));
            }
            go(base + at, 0, 1, tile ? WRITE : WRITE | TILES);
            if (!settle(RL_SWEEPSTATUS_OPEN))
                return 0;
            if (own == next)
                break;
        }
    }
    return sweep(at, 0, 0, WRITE); /* the last ones have been written, too */
}

/* Starts the tile's job through queue 0, as a host would; false where that does not get it. */
static int launch(uint32_t tile)
{
    place_t address = memory_of(tile);
    uint32_t since = now();

    put(QUEUE_REGISTER(0, RING_LOW), address);
    put(QUEUE_REGISTER(0, RING_HIGH), UPPER(address));
    put(QUEUE_REGISTER(0, WINDOW_LIMIT_HIGH), ~0u);
    put(QUEUE_REGISTER(0, POLICY), 1u << (16 + tile));
    put(QUEUE_REGISTER(0, RING_SIZE), 1);
    put(QUEUE_REGISTER(0, COMMAND), 1);
    put(QUEUE_REGISTER(0, TAIL), 1);
    while (!(get(PORT(READY)) & 1))
        if (now() - since > RL_SELFTEST_PATIENCE)
            return 0;
    put(PORT(START), tile << 8);
    return 1;
}

/* Waits for the tile's job; false where it does not end well. */
static int finished(uint32_t tile, uint32_t since)
{
    uint32_t well = 1;

    while (!(get(TILE_REGISTER(tile, SLOTS)) & 3) && well)
        well = now() - since < RL_SELFTEST_PATIENCE;
    if (!well) /* the host can still use the other tiles */
        put(REGISTER(ABORT), 1u << tile);
    put(TILE_REGISTER(tile, SLOT_COMMAND), RESUME | (get(TILE_REGISTER(tile, SLOTS)) & 3));
    put(REGISTER(SNAPSHOT), 1u << tile);
    selftest_cycles[tile] = get(TILE_REGISTER(tile, COUNTER_CYCLES_LOW));
    return well && (get(TILE_REGISTER(tile, STATUS)) >> 8 & 0xFF) == RL_STATUS_DONE;
}

/* Runs the jobs of all tiles, side by side. Returns the first one whose job does not end well, or RL_TILES. */
static uint32_t run(void)
{
    uint32_t begun, tile, bad = RL_TILES, since;

    for (begun = 0; begun < RL_TILES && launch(begun); begun++)
        ;
    put(QUEUE_REGISTER(0, RING_SIZE), 0);
    put(QUEUE_REGISTER(0, COMMAND), 1);
    for (tile = begun, since = now(); tile--;)
        if (!finished(tile, since))
            bad = tile;
    put(QUEUE_REGISTER(0, WINDOW_LIMIT_HIGH), 0);
    return bad < begun ? bad : begun;
}

/* Where row 0 of a pattern's results lies. */
static place_t result(uint32_t tile, uint32_t pattern)
{
    return memory_of(tile) + RL_SELFTEST_RESULTS + (pattern ? (ROWS + 1) * RL_SELFTEST_ROW_BYTES : 0);
}

static int right(place_t address, uint32_t beats, uint32_t pattern, uint32_t where)
{
    put(SWEEP(FILL), pattern);
    return sweep(address, RL_BEAT_BYTES, beats, CHECK | where);
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
    zero_bad = !right(at, ROW_BEATS, 0, 0);
    while (!zero_bad && ++row <= ROWS && right(at += RL_SELFTEST_ROW_BYTES, ROW_BEATS, expectation[pattern], 0))
        ;
    want = row ? expectation[pattern] : 0;
    /* The leftmost column: a wrong activation goes on to those on the right. */
    for (i = column = 0; i < ROW_BEATS && !given_up; i++) {
        right(at + i * RL_BEAT_BYTES, 1, want, 0); /* if not, the words are what was found */
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
        while (++row <= ROWS && !given_up && word_at(below += RL_SELFTEST_ROW_BYTES) != expectation[pattern])
            ;
    }
    if (given_up) {
        given_up = 0;
        leftmost = UNKNOWN;
        row = ROWS + 1;
    }
    put(MAILBOX(SELFTEST_ADDRESS_HIGH), UPPER(at));
    return wrong(RL_TEST_ARRAY, tile, (row <= ROWS ? ROWS - row : UNKNOWN) | leftmost << 16, at, want, found);
}

static int array(void)
{
    uint32_t tile, pattern;

    if (!place())
        return no_answer();
    tile = run();
    if (tile < RL_TILES) {
        put(MAILBOX(SELFTEST_ADDRESS_HIGH), UPPER(memory_of(tile)));
        return wrong(RL_TEST_ARRAY, tile, UNKNOWN | UNKNOWN << 16, memory_of(tile), RL_STATUS_DONE,
                     get(TILE_REGISTER(tile, STATUS)) >> 8 & 0xFFFF);
    }
    for (pattern = 0; pattern < sizeof expectation / sizeof *expectation; pattern++)
        if (!right(result(0, pattern), ROW_BEATS, 0, TILES)
            || !right(result(0, pattern) + RL_SELFTEST_ROW_BYTES, ROWS * ROW_BEATS, expectation[pattern], TILES))
            return given_up ? WRONG : silent() ? no_answer() : locate(tile_of(bad_place()), pattern);
    put(SWEEP(FILL), 0);
    return sweep(0, RL_BEAT_BYTES, (RL_SELFTEST_SIZE + RL_BEAT_BYTES - 1) / RL_BEAT_BYTES, WRITE | TILES)
        ? WELL : no_answer();
}

void selftest_power_on(void)
{
    limit = RL_SELFTEST_END;
    if ((march(0, 0, 1, EVERYWHERE) || address_lines(0, EVERYWHERE) || array()) && !given_up)
        return;
    put(MAILBOX(SELFTEST_END), now());
    put(MAILBOX(SELFTEST), given_up ? given_up : RL_SELFTEST_PASSED);
}

void selftest_march(uint32_t tile, uint32_t first, uint32_t count)
{
    place_t address = memory_of(tile) + ((place_t)first << BEAT_SHIFT);
    place_t last = address + ((place_t)(count - 1) << BEAT_SHIFT);

    limit = EVER;
    given_up = 0;
    put(MAILBOX(SELFTEST), RL_SELFTEST_RUNNING);
    if (march(address, last, count, 0) || address_lines(memory_of(tile), RL_SWEEPCOMMAND_PORTS))
        return;
    put(MAILBOX(SELFTEST_END), now());
    put(MAILBOX(SELFTEST), RL_SELFTEST_PASSED);
}

#ifdef __clang__
#pragma clang attribute pop
#endif
