"""NVIDIA's perf_analyzer, which lies in tritonclient's wheel, over HTTP and gRPC against a live server."""

import os
import re
import subprocess
import sys
from pathlib import Path

from serving import Serving

PROGRAM = Path(sys.executable).with_name("perf_analyzer")

RUNS = {
    "HTTP, tensor": ["-m", "identity_fp32", "--shape", "x:16"],
    "HTTP, text": ["-m", "text", "--string-data", "WORD"],
    "gRPC, tensor": ["-m", "identity_fp32", "--shape", "x:16", "-i", "grpc"],
    "gRPC, stream": ["-m", "identity_fp32", "--shape", "x:16", "-i", "grpc", "--streaming", "--async"],
}


def main():
    # It is linked with these whatever it does; where they were unpacked by hand, LD_LIBRARY_PATH says.
    missing = [line.split()[0] for line in subprocess.run(["ldd", PROGRAM], capture_output=True, text=True).stdout
               .splitlines() if "not found" in line]
    if missing:
        print(f"perf_analyzer is skipped: there is no {', '.join(missing)}")
        return
    serving = Serving()
    try:
        for name, arguments in RUNS.items():
            # Whether the machine is quiet enough for numbers is not what is tried here.
            command = [PROGRAM, "-u", serving.address, "--concurrency-range", "2:2", "--measurement-interval", "1000",
                       "-s", "999", *arguments]
            run = subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=120)
            counted = re.search(r"Successful request count: (\d+)", run.stdout)
            if run.returncode or not (counted or "streaming" in " ".join(arguments)):
                sys.exit(f"{name}: it ended with {run.returncode}\n{run.stdout}{run.stderr}")
            rate, latency = (re.search(pattern, run.stdout)[1] for pattern in
                             (r"Throughput: (\S+) infer/sec", r"p50 latency: (\d+) usec"))
            print(f"{name:14} {float(rate):9.0f} inferences/s, median {int(latency):5} µs, at 2 clients")
    finally:
        serving.stop()


if __name__ == "__main__":
    main()
