"""The filter of system calls as the kernel would read it, for both kinds of processor, with the kernel's own numbers.

An interpreter of filter programs stands in for the kernel, so that the program for arm64 is tried where there is none.
The numbers are those of the kernel's header files, which the package ``linux-libc-dev`` has for all kinds.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from coding_env.sandbox.inside import seccomp

HEADERS = {
    "x86_64": ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"),
    "x32": ("/usr/include/x86_64-linux-gnu/asm/unistd_x32.h", "/usr/include/asm/unistd_x32.h"),
    "aarch64": ("/usr/include/asm-generic/unistd.h",),
}
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_… of linux/audit.h
OTHER_ARCHITECTURES = {"i386": 0x40000003, "arm": 0x40000028, "riscv64": 0xC00000F3}
MACHINES = list(ARCHITECTURES)
ALLOW, KILL, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
NEEDED = """
    read write close openat newfstatat fstat lseek mmap mprotect munmap brk rt_sigaction rt_sigprocmask rt_sigreturn
    pread64 pwrite64 readv writev faccessat dup dup3 nanosleep clock_nanosleep getpid getppid gettid socketpair
    sendto recvfrom sendmsg recvmsg shutdown exit exit_group wait4 uname fcntl flock fsync ftruncate getdents64
    getcwd chdir mkdirat unlinkat renameat2 linkat symlinkat readlinkat utimensat gettimeofday getrusage getuid
    geteuid sched_yield sched_getaffinity futex set_robust_list set_tid_address epoll_create1 epoll_ctl epoll_pwait
    eventfd2 pipe2 ppoll pselect6 clock_gettime clock_getres getrandom statx statfs madvise sysinfo times ioctl
"""
NOT_IN_A_NAMESPACE_OF_ITS_OWN = ("execve", "execveat", "fork", "vfork", "pidfd_open", "pidfd_send_signal", "tkill")
ESCAPES = """
    ptrace mount umount2 pivot_root chroot unshare setns bpf perf_event_open userfaultfd io_uring_setup kexec_load
    init_module finit_module delete_module reboot swapon process_vm_readv process_vm_writev pidfd_getfd keyctl
    add_key open_by_handle_at move_mount fsopen open_tree mount_setattr sethostname settimeofday memfd_create
    personality timer_create mq_notify
"""
CLONE_VM, CLONE_VFORK, CLONE_THREAD, CLONE_NEWUSER, CLONE_NEWNS = 0x100, 0x4000, 0x10000, 0x10000000, 0x20000
PID = 4321


@cache
def numbers(kind: str) -> dict[str, int]:
    """System calls of a kind of processor, by their names, as the kernel's header has them."""
    for path in HEADERS[kind]:
        if Path(path).exists():
            text = Path(path).read_text()
            break
    else:
        pytest.skip(f"no {HEADERS[kind][0]}: the package linux-libc-dev has it")
    # 64-bit machines have the generic header's calls of that name with numbers of their own.
    wide = {name: int(number) for name, number in re.findall(r"#define __NR3264_(\w+)\s+(\d+)", text)}
    found = {
        name: wide[alias] for name, alias in re.findall(r"#define __NR_(\w+)\s+__NR3264_(\w+)", text) if alias in wide
    }
    found |= {name: int(number) for name, number in re.findall(r"#define __NR_(\w+)\s+(\d+)", text)}
    found |= {
        name: int(number) for name, number in re.findall(r"#define __NR_(\w+)\s+\(__X32_SYSCALL_BIT \+ (\d+)\)", text)
    }
    return found


def outcome(program: bytes, architecture: int, number: int, arguments: Sequence[int] = ()) -> int:
    """What a filter program returns for a system call: the kernel's rules for the instructions that filters have."""
    data = struct.pack("IIQ6Q", number, architecture, 0, *[*arguments, *[0] * (6 - len(arguments))])
    code = [struct.unpack_from("HBBI", program, at) for at in range(0, len(program), 8)]
    accumulator, at = 0, 0
    while True:
        operation, if_true, if_false, value = code[at]
        at += 1
        if operation == 0x20:  # load a word
            (accumulator,) = struct.unpack_from("I", data, value)
        elif operation == 0x54:  # and
            accumulator &= value
        elif operation == 0x06:  # return
            return value
        else:
            holds = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[operation]
            at += if_true if holds else if_false


class Filter:
    """A filter, asked by names."""

    def __init__(self, machine: str, *, alone: bool) -> None:
        self.machine = machine
        self.program = seccomp.program(own_processes=alone, own_network=alone, own_pid=PID, machine=machine)

    def __call__(self, name: str, *arguments: int) -> int:
        return outcome(self.program, ARCHITECTURES[self.machine], numbers(self.machine)[name], arguments)

    def knows(self, name: str) -> bool:
        return name in numbers(self.machine)


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=[True, False], ids=["alone", "among others"])
def alone(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.mark.parametrize("column", [0, 1], ids=MACHINES)
def test_every_number_is_the_kernels(column: int) -> None:
    known = numbers(MACHINES[column])
    tables = (
        seccomp._REFUSED, seccomp._REFUSED_AMONG_OTHERS, seccomp._OF_ITSELF, seccomp._OF_ITSELF_EVERYWHERE,  # pyright: ignore[reportPrivateUsage]
        {name: pair for name, (pair, _) in seccomp._REFUSED_COMMANDS.items()},  # pyright: ignore[reportPrivateUsage]
        {"clone": seccomp._CLONE, "clone3": seccomp._CLONE3, "socket": seccomp._SOCKET},  # pyright: ignore[reportPrivateUsage]
    )  # fmt: skip
    listed = {name: pair[column] for table in tables for name, pair in table.items()}
    wrong = {
        name: (number, known.get(name))
        for name, number in listed.items()
        # A header may be older than the list.
        if number != known.get(name) and not (name not in known and number and number > max(known.values()))
    }
    assert not wrong


def test_what_only_an_attack_needs_is_refused_on_each_machine(machine: str, alone: bool) -> None:
    called = Filter(machine, alone=alone)
    assert {name: called(name) for name in ESCAPES.split()} == dict.fromkeys(ESCAPES.split(), EPERM)


def test_what_programs_need_is_allowed_on_each_machine(machine: str, alone: bool) -> None:
    called = Filter(machine, alone=alone)
    assert {name: called(name) for name in NEEDED.split()} == dict.fromkeys(NEEDED.split(), ALLOW)


def test_processes_are_started_only_in_a_namespace_of_its_own(machine: str) -> None:
    for alone, expected in ((True, ALLOW), (False, EPERM)):
        called = Filter(machine, alone=alone)
        there = [name for name in NOT_IN_A_NAMESPACE_OF_ITS_OWN if called.knows(name)]
        assert {name: called(name) for name in there} == dict.fromkeys(there, expected)
        assert called("clone", 17) == expected


def test_threads_are_started_everywhere_and_namespaces_nowhere(machine: str, alone: bool) -> None:
    called = Filter(machine, alone=alone)
    assert called("clone", CLONE_VM | CLONE_THREAD) == ALLOW
    assert called("clone", CLONE_NEWUSER) == called("clone", CLONE_NEWNS | CLONE_VM | CLONE_THREAD) == EPERM
    assert called("clone3") == ENOSYS


def test_a_child_that_ends_sends_no_signal_but_the_usual(machine: str) -> None:
    called = Filter(machine, alone=True)
    flags = (0, CLONE_VM | CLONE_VFORK, CLONE_VM | CLONE_THREAD)  # fork, posix_spawn, a thread
    for signal in range(65):
        expected = ALLOW if signal in (0, 17) else EPERM
        assert {called("clone", each | signal) for each in flags} == {expected}, signal


def test_signals_among_others_reach_only_itself(machine: str) -> None:
    called = Filter(machine, alone=False)
    for name in ("kill", "tgkill", "rt_sigqueueinfo"):
        assert (called(name, PID), called(name, PID - 1), called(name, 0), called(name, 0xFFFFFFFF)) == (
            ALLOW, EPERM, EPERM, EPERM,
        )  # fmt: skip
    assert Filter(machine, alone=True)("kill", 0xFFFFFFFF) == ALLOW


def test_limits_are_set_of_itself_only(machine: str, alone: bool) -> None:
    called = Filter(machine, alone=alone)
    assert (called("prlimit64", 0), called("prlimit64", PID), called("prlimit64", 1)) == (ALLOW, ALLOW, EPERM)


def test_sockets_are_for_a_network_of_its_own_and_of_few_families(machine: str) -> None:
    called = Filter(machine, alone=True)
    families = {"unix": 1, "inet": 2, "inet6": 10, "netlink": 16, "packet": 17, "alg": 38, "vsock": 40}
    assert [name for name, family in families.items() if called("socket", family) == ALLOW] == ["unix", "inet", "inet6"]
    called = Filter(machine, alone=False)
    assert {called("socket", family) for family in families.values()} == {EPERM}


def test_commands_that_make_a_signal_or_type_into_a_terminal_are_refused(machine: str, alone: bool) -> None:
    called = Filter(machine, alone=alone)
    assert [called("fcntl", 3, command) for command in (1, 3, 8, 10, 15)] == [ALLOW, ALLOW, EPERM, EPERM, EPERM]
    assert [called("ioctl", 0, command) for command in (0x5401, 0x5412, 0x8901)] == [ALLOW, EPERM, EPERM]


def test_calls_by_another_architectures_numbers_end_the_process(machine: str, alone: bool) -> None:
    program = Filter(machine, alone=alone).program
    others = {**ARCHITECTURES, **OTHER_ARCHITECTURES}
    del others[machine]
    assert {name: outcome(program, value, 0) for name, value in others.items()} == dict.fromkeys(others, KILL)


def test_no_call_by_the_numbers_of_32_bit_pointers_is_allowed(alone: bool) -> None:
    program, calls = Filter("x86_64", alone=alone).program, numbers("x32")
    assert len(calls) > 300
    assert {outcome(program, ARCHITECTURES["x86_64"], 0x40000000 + number) for number in calls.values()} == {EPERM}


def test_calls_newer_than_the_list_are_not_there(machine: str, alone: bool) -> None:
    program = Filter(machine, alone=alone).program
    assert outcome(program, ARCHITECTURES[machine], 600) == ENOSYS
    assert len(program) // 8 <= 4096  # the most instructions that the kernel takes


def test_the_kernel_takes_the_program_for_this_machine() -> None:
    import os

    if not seccomp.is_known():
        pytest.skip(f"no filter for {seccomp.MACHINE}")
    pid = os.fork()
    if pid == 0:
        try:
            from coding_env.sandbox.inside import kernel

            kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
            seccomp.install(seccomp.program(own_processes=False, own_network=False, own_pid=os.getpid()))
            try:
                os.fork()
            except PermissionError:
                os._exit(42)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42
