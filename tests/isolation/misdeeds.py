#!/usr/bin/env python3
"""Native code that does harm in the workers of `gpux serve --isolation pipeline`, while neighbours are under load.

Each misdeed is a request to a victim. The server and its other pipelines must not notice; the victim's answer must be
what is expected, and the victim must answer again afterwards. Needs Linux, a C compiler, gpux's ONNX Runtime
(`gpux engine install cpu`), and the packages onnx and numpy. Exits with 1 if anything differs from what is expected,
with 3 if the machine cannot do it.
"""

import argparse
import contextlib
import ctypes
import errno
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from server import CACHE, KILL_AFTER, ROOT, Client, Neighbours, Server
from server import build_library, neighbours, percentile, write_victims

LEAST = {"int32": -(2**31), "int64": -(2**63)}
# What the server may need for what a worker answers, in MiB: more is a way to end the server.
MOST_GROWTH = 512
# Why a worker was killed after a deadline: the second takes ten times KILL_AFTER.
KILLED = r"ignored its deadline|left a request waiting"
# In namespaces, what belongs to others is not there, and what can be read is mounted read-only.
REFUSALS = (errno.EACCES, errno.EPERM, errno.ECONNREFUSED, errno.ENOENT, errno.EROFS, errno.ESRCH)
# As on a system that gives no namespaces.
WITHOUT_NAMESPACES = ["unshare", "--user", "--map-root-user", "sh", "-c",
                      'echo 0 > /proc/sys/user/max_mnt_namespaces && exec "$@"', "sh"]


@dataclass
class Misdeed:
    """A request that does harm."""

    name: str
    # crash: 500 with a reason that matches `reason`; killed: 504, and the worker is killed; refused: the system refuses
    # it; bounded: a crash, or too little memory; answered: 200; contained: any answer. In all cases neighbours and
    # server must not notice.
    expected: str
    reason: str = ""
    # a pipeline of operators; "native" does what misdeeds.c calls `name`
    victim: str = "native"
    amount: int = 0
    inputs: dict = field(default_factory=dict)
    # what the server must have for this to come out so: a confinement's part, or "memory bound"
    needs: str = ""
    errors: tuple = REFUSALS
    # whether it ends the server, or a stranger, if it is not refused
    is_fatal: bool = False
    timeout: float = 8
    # seconds that leave time for effects after the answer
    after: float = 0
    # what the next worker does while it loads: hang, crash, grow; and what the log then says
    next_worker: str = ""
    log: str = ""


def crash(name, reason, **more):
    return Misdeed(name, "crash", reason, **more)


def refused(name, needs, **more):
    return Misdeed(name, "refused", needs=needs, **more)


def many_threads(expected):
    return Misdeed("many_threads", expected, "threads", amount=20000, timeout=20)


def memory(name, **more):
    return Misdeed(name, "bounded", r"memory|signal 9", needs="memory bound", timeout=30, **more)


def all_misdeeds(mebibytes, has_namespaces):
    """The table. `mebibytes`: what each misdeed with memory tries to take."""
    # The first process of a namespace does not get such a signal from itself.
    deaf = Misdeed("kill_itself", "answered", amount=signal.SIGKILL)
    stopped = Misdeed("kill_itself", "answered" if has_namespaces else "killed", amount=signal.SIGSTOP, timeout=0.5)
    fatal = {name: {"a": [least], "b": [-1]} for name, least in LEAST.items()}
    operators = "constant-of-shape expand tile range resize einsum one-hot pad"
    return [
        # Operators of ONNX.
        crash("divide", "signal 8", victim="divide", inputs=fatal["int64"]),
        # ONNX Runtime 1.32 answers what earlier ones ended at.
        Misdeed("remainder", "contained", victim="remainder", inputs=fatal["int32"]),
        # Faults of native code.
        crash("segfault", "signal 11"),
        crash("arithmetic_error", "signal 8"),
        crash("aborted", "signal 6"),
        crash("truncated_mapping", "signal 7"),
        crash("illegal_instruction", "signal 4"),
        crash("stack_overflow", "signal (6|11)"),
        crash("cpp_exception", "signal 6"),
        crash("double_free", "signal 6"),
        crash("heap_overflow", "signal (6|11)"),
        crash("exit_with", "exit code 0"),
        crash("exit_with", "exit code 3", amount=3),
        deaf if has_namespaces else crash("kill_itself", "signal 9", amount=signal.SIGKILL),
        Misdeed("kill_itself", "answered", amount=signal.SIGTERM),
        stopped,
        Misdeed("endless_loop", "killed", timeout=0.5),
        Misdeed("deaf_endless_loop", "killed", timeout=0.5),
        Misdeed("crash_after_answer", "answered", after=0.4),
        Misdeed("close_descriptors", "contained"),
        crash("segfault", "signal 11", next_worker="crash", after=1),
        crash("segfault", "signal 11", next_worker="hang", after=1, needs="time limit of loading"),
        crash("segfault", "signal 11", next_worker="grow", after=2, needs="memory bound", log="took more than"),
        # What the server reads from a worker.
        Misdeed("fill_channel", "contained", amount=0),
        Misdeed("fill_channel", "contained", amount=0xFF),
        Misdeed("scribble_on_channel", "contained", amount=1500),
        Misdeed("forge_answer", "contained", amount=256, timeout=20),
        crash("forge_values", "cannot be read", amount=15, timeout=20),
        crash("forge_values", "cannot be read", amount=120, timeout=20),
        Misdeed("forge_strings", "contained", amount=60, timeout=20),
        crash("forge_error", "cannot be read", amount=64, timeout=20),
        crash("garbage_to_control", "."),
        Misdeed("flood_control", "contained", amount=2000),
        Misdeed("flood_log", "answered", amount=256),
        crash("escape_sequences", "signal 6"),
        crash("forge_log", "signal 6"),
        Misdeed("ring_in_vain", "contained", amount=1500),
        Misdeed("block_event", "contained", after=0.5),
        # Memory.
        *[memory(name, victim=name, inputs={"n": [mebibytes]}) for name in operators.split()],
        memory("tokenizer", victim="tokenizer", inputs={"text": "ß" * 4}),
        memory("take_at_once", amount=mebibytes),
        memory("take_slowly", amount=mebibytes),
        memory("take_in_page_tables", amount=mebibytes),
        memory("reserve_channel", amount=mebibytes),
        memory("write_channel", amount=mebibytes),
        refused("take_in_file", "system calls", amount=mebibytes, timeout=30),
        refused("take_shared", "system calls", amount=mebibytes, timeout=30),
        refused("take_in_device", "files", amount=mebibytes, timeout=30),
        refused("take_in_sockets", "system calls", amount=mebibytes, timeout=30),
        refused("pass_descriptors", "system calls"),
        refused("take_in_children", "system calls", amount=mebibytes, timeout=30),
        # Files.
        refused("write_outside", "files"),
        refused("read_secret", "files"),
        refused("delete_secret", "files"),
        refused("change_mode", "system calls"),
        refused("change_open_mode", "system calls"),
        refused("change_open_owner", "system calls"),
        refused("change_open_times", "system calls"),
        refused("change_open_attributes", "system calls"),
        refused("change_mode_of_engine", "system calls"),
        refused("read_other_model", "files"),
        refused("overwrite_own_model", "files"),
        refused("read_cache_key", "files"),
        refused("write_cache", "files"),
        refused("list_cache", "files"),
        refused("read_other_entry", "files"),
        refused("read_server_environment", "files"),
        refused("open_server_memory", "files"),
        refused("fill_disk", "files", amount=256),
        Misdeed("sparse_cache_file", "answered", amount=16),
        Misdeed("many_cache_files", "answered", amount=100000, timeout=60),
        refused("pipes_in_cache", "files"),
        refused("open_many_files", "limits", amount=19000, errors=(errno.EMFILE,)),
        # Network.
        refused("connect_tcp", "network"),
        refused("send_udp", "network"),
        refused("listen_tcp", "network"),
        refused("connect_unix", "network"),
        # Other processes, and the system.
        refused("run_shell", "programs"),
        refused("kill_neighbour", "signals", is_fatal=True),
        refused("trace_server", "system calls", is_fatal=True),
        refused("pin_server", "system calls"),
        refused("slow_server", "system calls"),
        refused("read_server_memory", "system calls"),
        refused("read_server_limits", "system calls"),
        refused("raise_limits", "system calls"),
        refused("real_time_priority", "system calls"),
        refused("outlive_server", "system calls"),
        refused("new_namespace", "system calls"),
        Misdeed("fork_bomb", "contained", amount=400, needs="processes"),
        Misdeed("leave_daemon", "contained", needs="processes"),
        Misdeed("busy_threads", "contained", amount=64, needs="processor share", timeout=20),
        # The namespace may have no more of them before the server has counted them.
        many_threads("contained" if has_namespaces else "crash"),
        # The last, as nothing can follow where it is not refused.
        refused("kill_server", "signals", is_fatal=True),
    ]


class Suite:
    """Runs misdeeds against a server, and notes what they come to."""

    def __init__(self, options, server, folder, number_of, asked, neighbours):
        self.options, self.server, self.folder, self.number_of = options, server, folder, number_of
        self.asked, self.neighbours, self.client = asked, neighbours, Client(server.port)
        self.rows, self.failures = [], []
        self.fault_times, self.recovery_times, self.windows = [], [], []

    def is_expected(self, misdeed):
        needs = misdeed.needs
        return not needs or (self.options.expect_confinement and needs not in self.options.lacking)

    def request(self, misdeed):
        if misdeed.victim != "native":
            return misdeed.inputs
        amount = misdeed.amount
        if misdeed.name == "kill_neighbour":
            amount = self.server.worker(self.asked[-1][0])
        elif "server" in misdeed.name:
            amount = self.server.pid
        return {"misdeed": [self.number_of(misdeed.name), amount]}

    @staticmethod
    def good_request(misdeed):
        good = {"native": {"misdeed": [0, 0]}, "tokenizer": {"text": "a"}}
        return good.get(misdeed.victim) or {name: [1] for name in misdeed.inputs}

    def classify(self, misdeed, answer, since):
        """What came of it, and whether that is as expected."""
        error, message = answer.json.get("error"), str(answer.json.get("message", ""))
        if answer.status == 500 and error == "ModelCrashError":
            return f"crash: {message}", misdeed.expected in ("crash", "bounded") and re.search(misdeed.reason, message)
        if answer.status == 504:
            killed = self.server.line(KILLED, since, 0)
            return "killed" if killed else "504, not killed", misdeed.expected == "killed" and killed
        if answer.status == 200 and misdeed.victim == "native" and "result" in answer.json:
            number = -answer.json["result"][0]
            if number:
                wanted = {"refused": misdeed.errors, "bounded": (errno.ENOMEM,)}.get(misdeed.expected, ())
                return f"refused: {errno.errorcode.get(number, number)}", number in wanted
        if answer.status == 200:
            return "answered", misdeed.expected == "answered"
        is_bounded = misdeed.expected == "bounded" and re.search("memory|alloc", message)
        return f"{answer.status} {error}: {message}", is_bounded

    def fault_milliseconds(self, misdeed, answer, since):
        """From the fault, or else the request's begin, to the answer."""
        found = misdeed.victim == "native" and self.server.line(r"misdeed at (\d+\.\d+)", since, 0.3)
        return (answer.ended - (float(found[1]) if found else answer.begun)) * 1000, bool(found)

    def recover(self, misdeed, begun):
        """Seconds since then, until the victim answers a good request; `None` if it does not."""
        answer = None
        while time.monotonic() < begun + 40 and self.server.is_alive():
            answer = self.client.predict(misdeed.victim, self.good_request(misdeed), 10)
            if answer.status == 200:
                return answer.ended - begun
            time.sleep(0.05)
        print(f"{misdeed.name}: no answer to a good request: {answer and answer.json}", file=sys.stderr)
        return None

    def run(self, misdeed):
        expects, wrong, notes = self.is_expected(misdeed), [], []
        wanted = f"{misdeed.expected} {misdeed.reason}".strip()
        name = f"{misdeed.name} {misdeed.amount}" if misdeed.amount else misdeed.name
        name += f", the next worker: {misdeed.next_worker}" if misdeed.next_worker else ""
        if misdeed.is_fatal and not expects:
            self.rows.append((name, wanted, "left out: it would end others", "", "", "", "open"))
            return
        Path(f"/proc/{self.server.pid}/clear_refs").write_text("5")
        memory, since, begun = self.server.status("VmRSS"), len(self.server.log), time.monotonic()
        mark = self.folder / "engine" / (misdeed.next_worker or "nothing")
        mark.touch()
        answer = self.client.predict(misdeed.victim, self.request(misdeed), misdeed.timeout)
        time.sleep(misdeed.after)
        mark.unlink()
        recovered = answer.ended + misdeed.after
        if answer.status == 504 and self.server.line(KILLED, since, 10 * KILL_AFTER + 2):
            recovered = time.monotonic()
        recovery = self.recover(misdeed, recovered)
        ended = time.monotonic()
        got, is_right = self.classify(misdeed, answer, since)
        milliseconds, is_exact = None, False
        if got.startswith("crash"):
            milliseconds, is_exact = self.fault_milliseconds(misdeed, answer, since)
        if not self.server.is_alive():
            wrong.append("the server has ended")
        if expects and misdeed.log and not self.server.line(misdeed.log, since, 5):
            wrong.append(f"the log does not say `{misdeed.log}`")
        samples = self.neighbours.between(begun, ended)
        self.windows += samples
        lost = [sample for sample in samples if sample[2] != 200]
        wrong += [f"a neighbour's request got {status}: {pipeline}" for _, _, status, pipeline in lost[:3]]
        if "misdeed at" in str(answer.json):
            wrong.append("the client sees what the worker printed")
        if any("\33" in line or "\a" in line for line in self.server.log[since:]):
            wrong.append("the log has control characters")
        if any(line.startswith("forged") for line in self.server.log[since:]):
            wrong.append("the worker wrote a line of the log")
        ended = [line for line in self.server.log[since:] if re.search(r": its process ended", line)]
        wrong += [f"a neighbour ended: {line}" for line in ended if f" {misdeed.victim}: " not in line]
        if recovery is None:
            (wrong if expects else notes).append("no recovery")
        growth = self.server.status("VmHWM") - memory if self.server.is_alive() else 0
        if growth > 64:
            (wrong if growth > MOST_GROWTH else notes).append(f"the server took {growth} MiB")
        # A new worker, without what this one holds, and without a record of crashes.
        if self.server.is_alive():
            loaded = self.client.ask("POST", f"/v2/repository/models/{misdeed.victim}/load")
            wrong += ["it cannot be loaded again"] if loaded.status != 200 else []
            wrong += ["an entry of a neighbour's is gone"] if not self.options.entry.exists() else []
        survivors = end_survivors()
        if survivors:
            got += f"; {survivors} processes outlive the worker"
        is_right = (is_right or misdeed.expected == "contained") and not survivors and recovery is not None
        if not is_right and expects:
            wrong.append("not as expected")
        if milliseconds is not None and misdeed.expected == "crash" and "signal" in misdeed.reason:
            self.fault_times.append((milliseconds, name))
        if recovery is not None:
            self.recovery_times.append((recovery * 1000, name))
        verdict = "; ".join(wrong) if wrong else "ok" if is_right else f"open ({misdeed.needs})"
        self.failures += [f"{name}: {one}: {got}" for one in wrong]
        slowest = max((sample[1] for sample in samples), default=0) * 1000
        times = ("" if milliseconds is None else f"{'' if is_exact else '~'}{milliseconds:.0f}",
                 "-" if recovery is None else f"{recovery * 1000:.0f}", f"{slowest:.0f}")
        self.rows.append((name, wanted, got, *times, "; ".join([verdict, *notes])))

    def report(self, quiet):
        """Prints the table and the sums; `True` if all is as expected."""
        heads = ("misdeed", "expected", "got", "fault→answer ms", "recovery ms", "slowest neighbour ms", "verdict")
        for row in [heads, tuple("---" for _ in heads), *self.rows]:
            print("| " + " | ".join(text.replace("|", "/").replace("\n", " ") for text in row) + " |")
        before, during = ([one[1] * 1000 for one in samples] for samples in (quiet, self.windows))
        ratio = percentile(during, 0.99) / max(percentile(before, 0.99), 0.001)
        lost = [sample for sample in self.windows if sample[2] != 200]
        print(f"\nneighbours: {len(during)} requests during misdeeds, {len(lost)} lost; "
              f"p99 {percentile(during, 0.99):.1f} ms, quiet {percentile(before, 0.99):.1f} ms "
              f"({len(before)} requests): × {ratio:.2f}")
        for what, times in (("fault→answer", self.fault_times), ("recovery", self.recovery_times)):
            if times:
                print(f"{what}: median {percentile([one[0] for one in times], 0.5):.0f} ms, "
                      f"most {max(times)[0]:.0f} ms ({max(times)[1]})")
        if self.options.strict_times:
            self.failures += [f"{name}: answered after {late:.0f} ms" for late, name in self.fault_times if late > 50]
            self.failures += [f"the neighbours' p99 is {ratio:.1f} times the quiet one"] if ratio > 2 else []
        for failure in self.failures:
            print(f"DIFFERS: {failure}")
        return not self.failures


def misdeed_processes():
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            if re.match(r"Name:\smisdeed-(?s:.)*State:\s[^Z]", status.read_text()):
                yield int(status.parent.name)


def end_survivors():
    """Ends processes that misdeeds left behind, and that do not end soon after their worker; how many there were."""
    end = time.monotonic() + 2
    while (found := list(misdeed_processes())) and time.monotonic() < end:
        time.sleep(0.05)
    for process in found:
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)
    return len(found)


def listeners(folder):
    """What misdeeds try to connect to: a TCP and a Unix socket; the TCP port."""
    tcp, unix = socket.socket(), socket.socket(socket.AF_UNIX)
    tcp.bind(("127.0.0.1", 0))
    unix.bind(str(folder / "listener"))
    for listener in (tcp, unix):
        listener.listen()
    return tcp, unix


def entry_of(gpux, pipeline):
    """What `gpux build` leaves of a pipeline in the operator's cache: a path."""
    subprocess.run([gpux, "build", pipeline, "--engine", "onnxruntime"], check=True, capture_output=True)
    record = max(CACHE.glob("builds/*.entries"), key=lambda path: path.stat().st_mtime)
    # Behind its seal of 64 bytes.
    return CACHE / json.loads(record.read_bytes()[64:])[0]


def prepare(options, folder):
    """Files, models and the library: victims, what neighbours are asked, the library, the number of each misdeed."""
    tcp, unix = listeners(folder)
    for name in ("secret", "deletable"):
        (folder / name).write_text("known only to the test\n")
    asked, victims = list(neighbours(folder)), list(write_victims(folder))
    options.entry = entry_of(options.gpux, asked[-1][0])
    own = hashlib.sha256(str(next(one for one in victims if one.parent.name == "native")).encode()).hexdigest()[:32]
    definitions = {
        "FOLDER": folder, "SECRET": folder / "secret", "OTHER_MODEL": asked[-1][0], "CACHE": CACHE,
        "OWN_MODEL": victims[0].with_name("model.onnx"), "CACHE_KEY": CACHE.with_name("gpux.key"),
        "PORT": tcp.getsockname()[1], "GROWTH": options.mebibytes,
        "OTHER_ENTRY": options.entry, "OWN_CACHE": CACHE / "pipelines" / own,
    }
    library = build_library(folder, definitions)
    shim = ctypes.CDLL(str(library))
    return victims, asked, library, lambda name: shim.misdeed_number(name.encode()), (tcp, unix)


def run_misdeeds(options, folder):
    victims, asked, library, number_of, _listeners = prepare(options, folder)
    misdeeds = all_misdeeds(options.mebibytes, "namespaces" not in options.lacking)
    chosen = [one for one in misdeeds if re.search(options.only, one.name)]
    unknown = [one.name for one in chosen if one.victim == "native" and number_of(one.name) < 1]
    assert not unknown, f"misdeeds.c has no {unknown}"
    arguments = ["--engine-library", library, *options.server_arguments.split()]
    server = Server(options.gpux, [*victims, *(one[0] for one in asked)], arguments, options.wrapper)
    try:
        loaded = Neighbours(server.port, asked)
        time.sleep(1)
        begun = time.monotonic()
        time.sleep(options.quiet)
        quiet = loaded.between(begun, time.monotonic())
        suite = Suite(options, server, folder, number_of, asked, loaded)
        before = (server.status("Threads"), server.descriptors(), server.status("VmRSS"))
        for misdeed in chosen:
            suite.run(misdeed)
            print(f"{suite.rows[-1][0]}: {suite.rows[-1][2]}: {suite.rows[-1][-1]}", file=sys.stderr, flush=True)
            if not server.is_alive():
                break
        if server.is_alive():
            after = (server.status("Threads"), server.descriptors(), server.status("VmRSS"))
            print(f"server: threads {before[0]} → {after[0]}, descriptors {before[1]} → {after[1]}, "
                  f"memory {before[2]} → {after[2]} MiB\n")
        loaded.stop()
        code = server.stop()
        suite.failures += [f"the server ended with {code}"] if code != 0 else []
        return 0 if suite.report(quiet) else 1
    finally:
        server.stop()
        if options.log:
            Path(options.log).write_text("\n".join(server.log))


class ControlGroup:
    """A control group of this many bytes, of version 2, or else of version 1."""

    def __init__(self, bytes):
        lack = []
        for parent, limit in (("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")):
            self.folder = Path(parent, f"gpux-misdeeds-{os.getpid()}")
            try:
                self.folder.mkdir()
                # A folder of another file system would take any file.
                with open(self.folder / limit, "r+") as file:
                    file.write(str(bytes))
                if (self.folder / "memory.swap.max").exists():
                    (self.folder / "memory.swap.max").write_text("0")
                return
            except OSError as error:
                lack.append(f"{self.folder / limit}: {error.strerror}")
                with contextlib.suppress(OSError):
                    self.folder.rmdir()
        print("no control group can be made:", *lack, sep="\n  ")
        sys.exit(3)

    def remove(self):
        for _ in range(100):
            # A server that was killed leaves the groups of its workers.
            for group in self.folder.glob("gpux-worker-*"):
                with contextlib.suppress(OSError):
                    group.rmdir()
            with contextlib.suppress(OSError):
                self.folder.rmdir()
                return
            time.sleep(0.05)


def run_in_container(options, folder):
    """Four pipelines in a group of 1 GiB, of which one takes all the memory: only its requests fail."""
    victims, asked, library, number_of, _listeners = prepare(options, folder)
    victims = {path.parent.name: path for path in victims if path.parent.name in ("expand", "native")}
    # Memory that belongs to no process (a file that is not mapped) and that of children: the kernel, which ends the
    # process with the most memory, would end a neighbour or the server.
    native = ("take_at_once", "take_slowly", "take_in_children", "take_in_file", "take_shared", "take_in_sockets",
              "reserve_channel", "write_channel")
    attacks = [("expand", "expand", {"n": [2048]}, {"n": [1]})]
    attacks += [(name, "native", {"misdeed": [number_of(name), 2048]}, {"misdeed": [0, 0]}) for name in native]
    attacks += [("forge_answer", "native", {"misdeed": [number_of("forge_answer"), 640]}, {"misdeed": [0, 0]})]
    failures, group = [], ControlGroup(1 << 30)
    wrapper = ["sh", "-c", f'echo $$ > {group.folder}/cgroup.procs && exec "$@"', "sh"]
    for name, victim, request, good_request in attacks:
        if not re.search(options.only, name):
            continue
        arguments = ["--engine-library", library, *options.server_arguments.split()]
        server = Server(options.gpux, [victims[victim], *(one[0] for one in asked)], arguments,
                        [*wrapper, *options.wrapper])
        try:
            loaded, client, since = Neighbours(server.port, asked), Client(server.port), len(server.log)
            time.sleep(0.5)
            eaten = client.predict(victim, request, 20)
            good = client.predict(victim, good_request, 20)
            time.sleep(0.5)
            loaded.stop()
            lost = [sample for sample in loaded.samples if sample[2] != 200]
            # The kernel may also end children of the worker, which reports that.
            wrong = ["2 GiB fit into 1 GiB"] if eaten.status == 200 and eaten.json["result"] in (1.0, [0, 0]) else []
            wrong += ["the victim does not answer again"] if good.status != 200 else []
            wrong += [f"neighbours lost {len(lost)} of {len(loaded.samples)} requests"] if lost else []
            log = [line for line in server.log[since:] if "its process ended" in line]
            wrong += [f"a neighbour ended: {line}" for line in log if f" {victim}: " not in line]
            wrong += [] if server.is_alive() else [f"the server has ended with {server.process.poll()}"]
            said, seconds = eaten.json.get("message", eaten.json), eaten.ended - eaten.begun
            print(f"{name}: {eaten.status} {said} after {seconds:.2f} s, then {good.status} after "
                  f"{good.ended - good.begun:.2f} s: {'; '.join(wrong) or 'ok'}", flush=True)
            failures += [f"{name}: {one}" for one in wrong]
        finally:
            server.stop()
    group.remove()
    for failure in failures:
        print(f"DIFFERS: {failure}")
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--gpux", default=os.environ.get("GPUX", ROOT / "target/debug/gpux"), help="the program")
    add("--without-namespaces", action="store_true", help="as on a system that gives none")
    add("--container", action="store_true", help="four pipelines in a control group of 1 GiB instead")
    add("--only", default="", help="a regular expression: only misdeeds with such names")
    add("--expect-confinement", action=argparse.BooleanOptionalAction, default=True,
        help="whether workers are confined and their memory is bounded")
    add("--lacking", default="", help="parts of the confinement that this system lacks: files,network,signals,…")
    add("--strict-times", action="store_true", help="answers within 50 ms of a fault, neighbours' p99 at most doubled")
    add("--mebibytes", type=int, default=3072, help="what misdeeds with memory try to take [default: 3072]")
    add("--server-arguments", default="--isolation-strict --worker-memory 1GiB --body-memory 192MiB", help="further arguments of `gpux serve`")
    add("--quiet", type=float, default=10, help="seconds of load before the first misdeed [default: 10]")
    add("--log", help="where to write the server's log")
    options = parser.parse_args()
    options.lacking = options.lacking.split(",")
    options.wrapper = WITHOUT_NAMESPACES if options.without_namespaces else []
    options.lacking += ["namespaces"] if options.without_namespaces else []
    with tempfile.TemporaryDirectory(prefix="gpux-misdeeds-") as folder:
        run = run_in_container if options.container else run_misdeeds
        sys.exit(run(options, Path(folder).resolve()))


if __name__ == "__main__":
    main()
