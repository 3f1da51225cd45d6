/* How the firmware reaches hardware. Addresses come from generated headers; tests bring their own functions. */
#ifndef HARDWARE_H
#define HARDWARE_H

#include <stdint.h>

#include "ringloom.h" /* generated: registers, records, codes, regions */

#define REGISTER(name) (RL_REGION_REGISTERS + RL_REG_##name)
#define TILE_REGISTER(tile, name) (REGISTER(TILE0_##name) + (tile) * RL_TILE_STRIDE)
#define QUEUE_REGISTER(queue, name) (REGISTER(QUEUE0_##name) + (queue) * RL_QUEUE_STRIDE)
#define PORT(name) (RL_REGION_QUEUES + RL_PORT_##name)
#define SWEEP(name) (RL_REGION_SWEEP + RL_SWEEP_##name)
#define MAILBOX(name) (RL_REGION_MAILBOX + RL_MAILBOX_##name)
#define PORT_RESULT(queue, name) (PORT(name) + (queue) * RL_PORT_RESULT_STRIDE)

#ifdef RL_HOSTED
uint32_t get(uint32_t address);
void put(uint32_t address, uint32_t value);
#else
static inline uint32_t get(uint32_t address) { return *(volatile uint32_t *)address; }
static inline void put(uint32_t address, uint32_t value) { *(volatile uint32_t *)address = value; }
#endif

#endif
