"""The filter of system calls: what no program needs that only computes is refused.

A refused call fails with EPERM, as it would for want of a right, so that programs go on. The filter is a list of what
is refused, since Python and its libraries use nearly all of the rest.

Source: ``Documentation/userspace-api/seccomp_filter.rst`` of Linux; the list follows what container engines refuse.
"""

from __future__ import annotations

import ctypes
import struct

from .kernel import MACHINE, PR_SET_SECCOMP

_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_COLUMN = {"x86_64": 0, "aarch64": 1}
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_LOAD, _AND, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_NAMESPACE_FLAGS = 0x7E020000  # every CLONE_NEW… that clone takes
_CLONE_THREAD = 0x00010000
_END_SIGNAL = 0xFF  # the part of clone's flags that names what the parent gets when the child ends
_NONE, _SIGCHLD = 0, 17

# Name: its number on x86_64 and on aarch64; None where there is no such call.
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "unshare": (272, 97), "setns": (308, 268), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "kexec_load": (246, 104), "kexec_file_load": (320, 294),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "reboot": (169, 142),
    "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171), "sethostname": (170, 161),
    "setdomainname": (171, 162), "iopl": (172, None), "ioperm": (173, None), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "syslog": (103, 116), "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264), "move_pages": (279, 239), "migrate_pages": (256, 238), "mbind": (237, 235),
    "set_mempolicy": (238, 237), "personality": (135, 92), "vhangup": (153, 58), "fanotify_init": (300, 262),
    "modify_ldt": (154, None), "lookup_dcookie": (212, 18), "nfsservctl": (180, 42), "memfd_secret": (447, 447),
    "setpriority": (141, 140), "sched_setscheduler": (144, 119), "sched_setattr": (314, 274),
    "ioprio_set": (251, 30), "process_mrelease": (448, 448), "open_tree_attr": (467, 467),
    # Memory that no limit of a process's counts.
    "memfd_create": (319, 279), "shmget": (29, 194), "semget": (64, 190), "msgget": (68, 186),
    # Access lists are a chmod by another name, and Landlock knows neither.
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "removexattrat": (466, 466),
    # A signal of one's choice at a time of one's choice wakes who was stopped until the next call.
    "timer_create": (222, 107), "mq_notify": (244, 184),
}  # fmt: skip
_FIRST_UNKNOWN = 470
"""Calls from here on are newer than this list: to programs the kernel looks like one that lacks them."""
# Refused beside them where other sessions' processes have the same user and can be named.
_REFUSED_AMONG_OTHERS: dict[str, tuple[int | None, int | None]] = {
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281), "chmod": (90, None),
    "fchmod": (91, 52), "fchmodat": (268, 53),
    "fchmodat2": (452, 452), "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424), "tkill": (200, 130),
}  # fmt: skip
# Allowed there of the process itself only, by its first argument.
_OF_ITSELF: dict[str, tuple[int | None, int | None]] = {
    "kill": (62, 129), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
}  # fmt: skip
# Allowed of the process itself everywhere: the keeper has the same user.
_OF_ITSELF_EVERYWHERE: dict[str, tuple[int | None, int | None]] = {
    "prlimit64": (302, 261), "sched_setaffinity": (203, 122), "sched_setparam": (142, 118),
}  # fmt: skip
_ZERO_IS_ITSELF = frozenset({"prlimit64", "sched_setaffinity", "sched_setparam"})
# By their second argument. A descriptor's owner gets signals of one's choice, whoever that is; a terminal's input can
# be typed for its user.
_REFUSED_COMMANDS: dict[str, tuple[tuple[int, int], tuple[int, ...]]] = {
    "fcntl": ((72, 25), (8, 10, 15)),  # F_SETOWN, F_SETSIG, F_SETOWN_EX
    "ioctl": ((16, 29), (0x8901, 0x8902, 0x5412, 0x541C)),  # FIOSETOWN, SIOCSPGRP, TIOCSTI, TIOCLINUX
}
_CLONE, _CLONE3, _SOCKET = (56, 220), (435, 435), (41, 198)
_FAMILIES = (1, 2, 10)  # Unix, IPv4, IPv6

_NUMBER, _ARCH, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24  # offsets in struct seccomp_data


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def is_known() -> bool:
    """Whether the numbers of this machine's system calls are known here."""
    return MACHINE in _ARCHITECTURE


def program(*, own_processes: bool, own_network: bool, own_pid: int = 0, machine: str = MACHINE) -> bytes:
    """Return the filter.

    Args:
        own_processes: Whether the process is among processes of its own session only (a namespace). If not, it can
            neither start others nor signal any but itself.
        own_network: Whether it has a network of its own. If not, it gets no sockets but pairs.
        own_pid: The process, which may send signals to itself.
        machine: The kind of processor.
    """
    column = _COLUMN[machine]
    refuse = _instruction(_RETURN, _ERRNO | _EPERM)
    code = [
        _instruction(_LOAD, _ARCH),
        _instruction(_JUMP_EQUAL, _ARCHITECTURE[machine], 1, 0),
        _instruction(_RETURN, _KILL),
        _instruction(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":  # the calls of its 32-bit pointers' variant
        code += [_instruction(_JUMP_AT_LEAST, 0x40000000, 0, 1), refuse]
    code += [_instruction(_JUMP_AT_LEAST, _FIRST_UNKNOWN, 0, 1), _instruction(_RETURN, _ERRNO | _ENOSYS)]
    refused = dict(_REFUSED)
    if not own_processes:
        refused |= _REFUSED_AMONG_OTHERS
    for numbers in refused.values():
        number = numbers[column]
        if number is not None:
            code += [_instruction(_JUMP_EQUAL, number, 0, 1), refuse]
    # Its flags lie in memory, where no filter sees them; the C library then takes clone.
    code += [_instruction(_JUMP_EQUAL, _CLONE3[column], 0, 1), _instruction(_RETURN, _ERRNO | _ENOSYS)]
    allow = _instruction(_RETURN, _ALLOW)
    for numbers, commands in _REFUSED_COMMANDS.values():
        block = [_instruction(_LOAD, _SECOND_ARGUMENT)]
        for command in commands:
            block += [_instruction(_JUMP_EQUAL, command, 0, 1), refuse]
        code += _guarded(numbers[column], [*block, allow])
    block = [_instruction(_LOAD, _FIRST_ARGUMENT), _instruction(_JUMP_ANY_BIT, _NAMESPACE_FLAGS, 0, 1), refuse]
    if not own_processes:
        block += [_instruction(_JUMP_ANY_BIT, _CLONE_THREAD, 1, 0), refuse]
    # Another, as SIGCONT, would wake a parent that was stopped.
    block += [_instruction(_AND, _END_SIGNAL), _instruction(_JUMP_EQUAL, _NONE, 2, 0)]
    block += [_instruction(_JUMP_EQUAL, _SIGCHLD, 1, 0), refuse]
    code += _guarded(_CLONE[column], [*block, allow])
    families = _FAMILIES if own_network else ()
    block = [_instruction(_LOAD, _FIRST_ARGUMENT)]
    for family in families:
        block += [_instruction(_JUMP_EQUAL, family, 0, 1), allow]
    code += _guarded(_SOCKET[column], [*block, refuse])
    of_itself = _OF_ITSELF_EVERYWHERE if own_processes else _OF_ITSELF_EVERYWHERE | _OF_ITSELF
    for name, numbers in of_itself.items():
        block = [_instruction(_LOAD, _FIRST_ARGUMENT), _instruction(_JUMP_EQUAL, own_pid, 0, 1), allow]
        if name in _ZERO_IS_ITSELF:
            block += [_instruction(_JUMP_EQUAL, 0, 0, 1), allow]
        code += _guarded(numbers[column], [*block, refuse])
    return b"".join([*code, allow])


def _guarded(number: int | None, block: list[bytes]) -> list[bytes]:
    """Instructions for one system call only; the block ends in a return."""
    return [] if number is None else [_instruction(_JUMP_EQUAL, number, 0, len(block)), *block]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install(code: bytes) -> None:
    """Have the kernel filter the system calls of this process and all that it starts, for ever.

    Raises:
        OSError: The kernel cannot, or ``no_new_privs`` is not set.
    """
    buffer = ctypes.create_string_buffer(code, len(code))
    filter_program = _Program(len(code) // 8, ctypes.cast(buffer, ctypes.c_char_p))
    libc = ctypes.CDLL(None, use_errno=True)
    mode = ctypes.c_ulong(2)  # SECCOMP_MODE_FILTER
    zero = ctypes.c_ulong(0)
    if libc.prctl(ctypes.c_int(PR_SET_SECCOMP), mode, ctypes.byref(filter_program), zero, zero) < 0:
        number = ctypes.get_errno()
        raise OSError(number, "seccomp filter refused")
