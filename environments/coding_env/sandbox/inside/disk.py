"""What a session has on the disk, where its workspace is no file system of its own whose size the kernel limits.

The keeper looks again and again while code runs. What is written between two looks, and what is open but has no name
any more, it does not see: that is held by the limits of a file's size and of open files.
"""

from __future__ import annotations

import contextlib
import os

MAX_FILES = 8192
"""Files and folders of a workspace."""


def too_much(folder: str, megabytes: int) -> str:
    """Return why a workspace holds more than it may; "" where it does not.

    Args:
        folder: The workspace.
        megabytes: How much it may hold.
    """
    used, count = 0, 0
    left = [folder]
    while left:
        try:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    count += 1
                    used += _bytes(entry)
                    if entry.is_dir(follow_symlinks=False):
                        left.append(entry.path)
                    if count > MAX_FILES:
                        return f"its workspace held more than {MAX_FILES} files"
                    if used > megabytes << 20:
                        return f"its workspace held more than {megabytes} MB"
        except FileNotFoundError:  # gone meanwhile
            continue
        except OSError as error:
            return f"its workspace could not be looked through ({error.strerror})"
    return ""


def remove(folder: str) -> None:
    """Remove a workspace, however deep its folders lie and whatever rights they have; what cannot be removed is left.

    Nobody may be at work in it. It is walked step by step, since paths and calls have limits that an agent can pass.
    """
    with contextlib.suppress(OSError):
        os.chmod(folder, 0o700)
        os.chdir(folder)
        inside: list[str] = []
        while True:
            below = _empty_but_for_one_folder()
            if below:
                os.chdir(below)
                inside.append(below)
            elif inside:
                os.chdir("..")
                os.rmdir(inside.pop())
            else:
                break
        os.chdir("..")
        os.rmdir(folder)


def _empty_but_for_one_folder() -> str:
    """Remove the working directory's files and empty folders, and return the first folder that is not empty."""
    with os.scandir(".") as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name)
                continue
            try:
                os.rmdir(entry.name)
            except OSError:
                os.chmod(entry.name, 0o700)
                return entry.name
    return ""


def _bytes(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_blocks * 512
    except FileNotFoundError:
        return 0
