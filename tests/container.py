"""Runs the image of deploy/Dockerfile as docs/deploy.md says, with podman and runc, as root.

    tests/container.py [--image localhost/gpux]

Each container has a read-only root, no capabilities, no new privileges, a user that is only a number, a limit of memory
and a network that leads nowhere. Says what it found, a line a check; ends with 1 if something is not as docs/deploy.md
has it.
"""

import argparse
import contextlib
import http.client
import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NETWORK = "gpux-check"
RUNTIME = ["--runtime", shutil.which("runc") or "/usr/sbin/runc", "--cgroup-manager", "cgroupfs"]
PHOTO = (ROOT / "models/samples/seven.png").read_bytes()
DIGITS = ["gpux.yml", "models/digits.onnx", "models/digits.labels.txt", "guest-examples/rust/center-ink.wasm"]
# Longer than anything takes here beside other work.
PATIENCE = 120
# Podman's defaults are more than some systems let root have.
LIMITS = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000"]
# As with Docker, no folder is writable that is not asked for.
LOCKED = [*LIMITS, "--read-only", "--read-only-tmpfs=false", "--cap-drop", "all", "--pids-limit", "256"]
LOCKED += ["--security-opt", "no-new-privileges"]

# Of users other than the image's, as in deploy/kserve.
OWN_FOLDERS = ["--env", "GPUX_CACHE_DIR=/tmp/gpux", "--env", "GPUX_STORE=/tmp/store"]

failures = []


def check(name, is_right, found=""):
    print(f"{'ok    ' if is_right else 'FAILED'} {name}{f': {found}' if found != '' else ''}", flush=True)
    if not is_right:
        failures.append(name)


def podman(*arguments, runtime=False, **options):
    command = ["podman", *(RUNTIME if runtime else []), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, **options)


def inspect(name, form):
    return podman("inspect", "--format", form, name).stdout.strip()


class Container:
    """A container that serves, until the end of the block."""

    def __init__(self, image, arguments, options=(), user="65532:65532", memory="1g", network=NETWORK):
        # Swap would let it take more than its limit.
        limits = ["--memory", memory, "--memory-swap", memory]
        command = ["run", "--detach", *LOCKED, *limits, "--network", network, "--user", user, "--tmpfs", "/tmp:size=256m"]
        # A new volume begins with the owner of the image's folder; others have their cache elsewhere, as in deploy/kserve.
        command += ["--volume", "/cache"] if user.startswith("65532") else OWN_FOLDERS
        started = podman(*command, *options, image, *arguments, runtime=True)
        self.id = started.stdout.strip()
        if started.returncode != 0 or not self.id:
            raise SystemExit(f"podman cannot start the container: {started.stderr}")
        self.address = inspect(self.id, "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        podman("rm", "--force", "--volumes", "--time", "0", self.id)

    def log(self):
        logs = podman("logs", self.id)
        return logs.stdout + logs.stderr

    def ask(self, method, path, body=None, kind="application/json", timeout=60):
        connection = http.client.HTTPConnection(self.address, 8080, timeout=timeout)
        with contextlib.closing(connection):
            headers = {"content-type": kind, "accept": "text/plain" if path == "/metrics" else "*/*"}
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.read()

    def status(self, path):
        try:
            return self.ask("GET", path)[0]
        except OSError:
            return 0

    def is_running(self):
        return inspect(self.id, "{{.State.Running}}") == "true"

    def wait_until(self, condition):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if condition():
                return True
            if not self.is_running():
                return condition()
            time.sleep(0.1)
        return False

    def is_ready(self):
        return self.wait_until(lambda: self.status("/health/ready") == 200)

    def predict(self, pipeline, inputs):
        try:
            status, body = self.ask("POST", f"/pipelines/{pipeline}/predict", json.dumps(inputs))
            return status, json.loads(body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            return 0, {"error": repr(error)}

    def seven(self):
        try:
            status, body = self.ask("POST", "/pipelines/digits/predict", PHOTO, "image/png")
            return json.loads(body)["top"][0]["label"] if status == 200 else f"{status} {body!r}"
        except (OSError, http.client.HTTPException) as error:
            return repr(error)

    def end(self):
        podman("wait", self.id)
        return inspect(self.id, "{{.State.ExitCode}}"), inspect(self.id, "{{.State.OOMKilled}}")

    def memory(self):
        """Bytes that the control group has now."""
        stats = podman("stats", "--no-stream", "--format", "{{.MemUsage}}", self.id, runtime=True)
        return stats.stdout.strip()


def write_pipelines(folder):
    """The digits, which every user may read and none write, and models that take their time, or memory."""
    for name in DIGITS:
        (folder / "digits" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / "digits" / name)
    for name in ("loop", "divide", "lowercase", "mebibytes"):
        (folder / name).mkdir()
        shutil.copy(ROOT / f"tests/models/{name}.onnx", folder / name)
        # The default timeout is too short beside other work.
        lines = [f"name: {name}", "version: 1.0.0", f"model: ./{name}.onnx", "pipeline: [model]", "serving: { timeout: 60s }"]
        (folder / name / "gpux.yml").write_text("\n".join(lines))
    subprocess.run(["chmod", "-R", "a=rX", folder], check=True)


def check_image(image):
    config = json.loads(podman("image", "inspect", image).stdout)[0]["Config"]
    check("entry point", config["Entrypoint"] == ["gpux"], config["Entrypoint"])
    check("command", config["Cmd"] == ["serve", ".", "--log-format", "json"], config["Cmd"])
    check("user", config["User"] == "65532:65532", config["User"])
    check("port", list(config["ExposedPorts"]) == ["8080/tcp"])
    check("signal that ends it", config.get("StopSignal") in ("SIGTERM", "15"), config.get("StopSignal"))
    labels = {"org.opencontainers.image.title", "org.opencontainers.image.licenses", "org.opencontainers.image.source"}
    check("labels", labels <= set(config["Labels"]), sorted(config["Labels"]))

    # A shell of the image, for looking.
    look = """
    set -e
    test -s /usr/share/doc/gpux/LICENSE
    grep -q Tokio /usr/share/doc/gpux/THIRD-PARTY.txt
    ls /usr/share/doc/*/ThirdPartyNotices.txt /usr/share/doc/*/LICENSE
    grep -c BEGIN.CERTIFICATE /etc/ssl/certs/ca-certificates.crt
    ls /usr/local/lib
    id -u
    gpux --version
    gpux engine list
    """
    run = podman("run", "--rm", *LOCKED, "--network", "none", "--entrypoint", "sh", image, "-c", look, runtime=True)
    check("licences, notices, certificates, engine", run.returncode == 0, (run.stdout + run.stderr).replace("\n", " | "))
    size = inspect(image, "{{.Size}}")
    # About 225 MB today.
    check("size", 100e6 < int(size) < 300e6, f"{int(size) / 1e6:.0f} MB")


def check_one(image, folder, memory, user):
    """One pipeline, as the image's own command serves it."""
    mounts = ["--volume", f"{folder}/digits:/pipelines:ro"]
    with Container(image, [], mounts, user=user, memory=memory) as container:
        name = f"digits, {memory}, user {user}"
        check(f"{name}: ready", container.is_ready(), "" if container.status("/health/ready") == 200 else container.log())
        check(f"{name}: live", container.status("/health/live") == 200)
        check(f"{name}: answers", container.seven() == "seven")
        metrics = container.ask("GET", "/metrics")[1].decode()
        check(f"{name}: metrics", 'gpux_pipeline_ready{pipeline="digits"} 1' in metrics)
        check(f"{name}: says nothing but JSON", all(line.startswith("{") for line in container.log().splitlines()))
        warnings = [line for line in container.log().splitlines() if '"WARN"' in line and "--keys" not in line]
        check(f"{name}: warns of nothing but keys", not warnings, warnings or "")
        print(f"       memory {container.memory()}")
        podman("stop", "--time", "40", container.id)
        code, _ = container.end()
        check(f"{name}: ends with 0 on SIGTERM", code == "0", code)


def check_locale(image, folder):
    with Container(image, ["serve", "/models/lowercase"], ["--volume", f"{folder}:/models:ro"]) as container:
        container.is_ready()
        answer = container.predict("lowercase", {"text": ["ÄPFEL"]})
        check("locale en_US.UTF-8", answer == (200, {"lower": ["äpfel"]}), answer)


def check_read_only(image, folder):
    """Where nothing can be written, the error says which folders are missing."""
    options = ["--network", "none", "--volume", f"{folder}/digits:/pipelines:ro"]
    for isolation, variables in (("none", ["GPUX_CACHE_DIR", "TMPDIR"]), ("pipeline", ["TMPDIR"])):
        command = ["serve", ".", "--isolation", isolation]
        run = podman("run", "--rm", *LOCKED, *options, image, *command, runtime=True)
        told = run.stderr.splitlines()[-1:]
        is_told = run.returncode != 0 and all(name in "".join(told) for name in variables)
        check(f"no folder to write to, isolation {isolation}: ends, and says so", is_told, (run.returncode, *told))


def check_drain(image, folder, isolation):
    """A request that is running when SIGTERM comes is answered; a new one is not taken."""
    mounts = ["--volume", f"{folder}:/models:ro"]
    arguments = ["serve", "/models/loop", "--drain", "60s", "--isolation", isolation]
    with Container(image, arguments, mounts) as container:
        name = f"drain, isolation {isolation}"
        if not container.is_ready():
            check(f"{name}: ready", False, container.log())
            return
        # As many turns as take a few seconds here.
        turns, begun = 1000, 0
        while begun < 2 and turns < 1 << 34:
            turns *= 4
            before = time.monotonic()
            container.predict("loop", {"turns": turns, "x": [0]})
            begun = time.monotonic() - before
        answers = []
        thread = threading.Thread(target=lambda: answers.append(container.predict("loop", {"turns": turns, "x": [0]})))
        thread.start()
        running = b'gpux_requests_running{pipeline="loop"} 1'
        check(f"{name}: a request runs", container.wait_until(lambda: running in container.ask("GET", "/metrics")[1]))
        podman("kill", "--signal", "TERM", container.id)
        container.wait_until(lambda: container.status("/health/ready") != 200)
        is_refused = container.status("/health/ready") in (0, 503)
        thread.join(PATIENCE)
        check(f"{name}: a running request is answered", [status for status, _ in answers] == [200], answers)
        check(f"{name}: no longer ready", is_refused)
        code, _ = container.end()
        check(f"{name}: ends with 0", code == "0", code)


def write_narrow_profile(folder):
    """A seccomp profile that denies namespaces and mounts to processes without capabilities, as Docker's and containerd's
    defaults do. Returns the option that selects it."""
    profile = json.loads(Path("/usr/share/containers/seccomp.json").read_text())
    denied = {"unshare", "setns", "mount", "mount_setattr", "move_mount", "open_tree", "pivot_root", "umount2"}
    for rule in profile["syscalls"]:
        if rule["action"] == "SCMP_ACT_ALLOW" and not rule.get("includes", {}).get("caps"):
            rule["names"] = [name for name in rule["names"] if name not in denied]
    profile["syscalls"] = [rule for rule in profile["syscalls"] if rule["names"]]
    (folder / "seccomp.json").write_text(json.dumps(profile))
    return ["--security-opt", f"seccomp={folder}/seccomp.json"]


def check_isolated(image, folder, profile, name, view):
    mounts = ["--volume", f"{folder}:/models:ro", *profile]
    arguments = ["serve", "/models/digits", "/models/divide", "--isolation", "pipeline"]
    with Container(image, arguments, mounts) as container:
        name = f"isolated pair, {name}"
        check(f"{name}: ready", container.is_ready(), "" if container.is_running() else container.log())
        said = [line for line in container.log().splitlines() if "namespaces" in line]
        check(f"{name}: the log says what holds", view in "".join(said), said)
        status, error = container.predict("divide", {"a": [-(2**63)], "b": [-1]})
        check(f"{name}: a crash is one error", status == 500 and error["error"] == "ModelCrashError", (status, error))
        check(f"{name}: the other answers", container.seven() == "seven")
        check(f"{name}: it answers again", container.predict("divide", {"a": [6], "b": [3]}) == (200, {"y": [2]}))
        print(f"       memory {container.memory()}")


def check_memory(image, folder, memory, isolation):
    """A request that takes more memory than the container has."""
    mounts = ["--volume", f"{folder}:/models:ro"]
    arguments = ["serve", "/models/digits", "/models/mebibytes", "--isolation", isolation]
    with Container(image, arguments, mounts, memory=memory) as container:
        name = f"too much memory, {memory}, isolation {isolation}"
        if not container.is_ready():
            check(f"{name}: ready", False, container.log())
            return
        answer = container.predict("mebibytes", {"n": [4096]})
        print(f"       {name}: {answer}")
        check(f"{name}: that request fails", answer[0] != 200)
        back = container.wait_until(lambda: container.seven() == "seven")
        state = [inspect(container.id, "{{.State.%s}}" % key) for key in ("Running", "ExitCode", "OOMKilled", "RestartCount")]
        check(f"{name}: the digits are answered again, in the same container", back and state[0] == "true", state)
        for line in container.log().splitlines():
            if any(word in line for word in ("ended", "killed", "started again")):
                print(f"       {line}")


def check_volumes(image, folder, narrow):
    """An image as a volume, and a modelcar."""
    models = io.BytesIO()
    with tarfile.open(fileobj=models, mode="w") as archive:
        archive.add(folder / "digits", "models")
    imported = subprocess.run(["podman", "import", "-", "localhost/gpux-models"], input=models.getvalue(), capture_output=True)
    if imported.returncode != 0:
        check("image volume", False, imported.stderr)
        return
    mount = ["--mount", "type=image,source=localhost/gpux-models,destination=/volume"]
    with Container(image, ["serve", "/volume/models"], mount) as container:
        is_right = container.is_ready() and container.seven() == "seven"
        check("image volume: answers", is_right, "" if is_right else container.log())
    podman("rmi", "--force", "localhost/gpux-models")

    # KServe's: a container with the files and a shell, one namespace of processes, a shared folder with a link.
    user = "1010:1010"
    with tempfile.TemporaryDirectory() as shared:
        Path(shared).chmod(0o777)
        link = "ln -sf /proc/$$/root/models /mnt/models; exec sleep 600"
        car = podman(
            "run", "--detach", *LIMITS, "--user", user, "--volume", f"{folder}/digits:/models:ro", "--volume", f"{shared}:/mnt",
            "--network", "none", "--entrypoint", "sh", image, "-c", link, runtime=True,
        ).stdout.strip()
        try:
            for isolation, profile in (("none", []), ("pipeline", []), ("pipeline", narrow)):
                options = ["--pid", f"container:{car}", "--volume", f"{shared}:/mnt:ro", *profile]
                arguments = ["serve", "/mnt/models", "--isolation", isolation]
                with Container(image, arguments, options, user=user) as container:
                    is_ready = container.is_ready() and container.seven() == "seven"
                    kind = f"isolation {isolation}{', a profile without namespaces' if profile else ''}"
                    check(f"modelcar, {kind}: answers", is_ready, "" if is_ready else container.log())
        finally:
            podman("rm", "--force", "--time", "0", car)


def check_bundle(image, folder):
    """Makes a bundle in one container, and serves it in another."""
    options = ["--network", "none", "--tmpfs", "/tmp", "--volume", "/cache"]
    bundles = folder / "bundles"
    bundles.mkdir()
    bundles.chmod(0o777)
    options += ["--volume", f"{folder}/digits:/pipelines:ro", "--volume", f"{bundles}:/bundles"]
    command = ["bundle", ".", "--output", "/bundles/digits.tar"]
    made = podman("run", "--rm", *LOCKED, *options, image, *command, runtime=True)
    check("bundle: made", made.returncode == 0, (made.stdout + made.stderr).replace("\n", " | "))
    if made.returncode != 0:
        return
    for user, isolation in (("65532:65532", "none"), ("65532:65532", "pipeline"), ("1010:1010", "none")):
        arguments = ["serve", "/bundles/digits.tar", "--isolation", isolation]
        with Container(image, arguments, ["--volume", f"{bundles}:/bundles:ro"], user=user) as container:
            is_right = container.is_ready() and container.seven() == "seven"
            check(f"bundle, user {user}, isolation {isolation}: answers", is_right, "" if is_right else container.log())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--image", default="localhost/gpux")
    image = parser.parse_args().image
    podman("network", "create", "--internal", NETWORK)
    try:
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            folder.chmod(0o755)
            # Podman leaves a file where it runs when memory ends.
            os.chdir(folder)
            write_pipelines(folder)
            check_image(image)
            for memory in ("1g", "2g"):
                check_one(image, folder, memory, "65532:65532")
            check_one(image, folder, "1g", "1010:1010")
            check_locale(image, folder)
            check_read_only(image, folder)
            for isolation in ("none", "pipeline"):
                check_drain(image, folder, isolation)
            narrow = write_narrow_profile(folder)
            check_isolated(image, folder, [], "podman's profile", "with a gap")
            check_isolated(image, folder, narrow, "a profile without namespaces", "no namespaces of their own")
            for isolation in ("none", "pipeline"):
                check_memory(image, folder, "1g", isolation)
            check_memory(image, folder, "2g", "pipeline")
            check_volumes(image, folder, narrow)
            check_bundle(image, folder)
    finally:
        podman("network", "rm", "--force", NETWORK)
    print(f"{len(failures)} failed" if failures else "all as docs/deploy.md says")
    raise SystemExit(1 if failures else 0)


if __name__ == "__main__":
    main()
