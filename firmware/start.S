# Start-up code of the management core: memories, stack, the wake-up source, main.
# Code memory cannot be written, and data memory keeps what was in it: initial values are copied at each start.

        .section .text.start, "ax"
        .globl  _start
_start:
        la      t0, halt
        csrw    mtvec, t0
        li      sp, STACK_TOP           # from the build: the end of data memory
        la      t0, _data
        la      t1, _data_end
        la      t2, _data_image
copy:   bgeu    t0, t1, clear_bss
        lw      t3, 0(t2)
        sw      t3, 0(t0)
        addi    t0, t0, 4
        addi    t2, t2, 4
        j       copy
clear_bss:
        la      t0, _bss
        la      t1, _bss_end
clear:  bgeu    t0, t1, go
        sw      zero, 0(t0)
        addi    t0, t0, 4
        j       clear
go:     li      t0, 1 << 11             # the external interrupt ends WFI; it is never taken
        csrw    mie, t0
        call    main

        .balign 4
halt:   wfi                             # an exception: a fault in the firmware itself
        j       halt
