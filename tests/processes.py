"""Tests in several processes, without a launcher."""

import os
import socket
import sys
import traceback

from accelerate.state import AcceleratorState, GradientState


def in_processes(count, function, *given):
    """Run `function` in forked processes with the environment that launchers set; their exit codes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(count):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count),
                               "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}  # fmt: skip
                AcceleratorState._reset_state(reset_partial_state=True)
                GradientState._reset_state()
                function(*given)
                code = 0
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(code)
        children.append(pid)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
