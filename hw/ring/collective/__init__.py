"""The collective engine: all-reduce, reduce-scatter, all-gather, broadcast and barrier over a group of tiles."""
