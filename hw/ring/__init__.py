"""The interconnect: tiles and the host on two counter-rotating rings."""
