# What people and CI run. `just` lists it.

default:
    @just --list

# the gate, as CI runs it
check:
    .ci/run

# every test
test:
    cargo test

# the Python wheel for others, with the program in it; needs `pip install maturin ziglang`
wheel:
    python/build.sh

# archives and Debian packages of the program, for x86_64-unknown-linux-gnu, aarch64-unknown-linux-gnu or
# x86_64-pc-windows-gnu; needs `pip install cargo-zigbuild ziglang`
dist *TARGETS:
    deploy/dist.sh {{TARGETS}}

# the Python package's tests against a wheel, in a fresh environment of a Python of your choice
python WHEEL PYTHON="python3":
    python/check.sh {{WHEEL}} {{PYTHON}}

# Ray and Spark on clusters of processes, workers killed among them; needs Java, and the wheel installed in the
# environment of PYTHON with `gpux[ray,spark,onnxruntime]` and pytest
cluster PYTHON="python3":
    cd python/tests/cluster && {{PYTHON}} -m pytest -p no:cacheprovider .

# unit tests of core, config and steps on arm64, under qemu; the file says what it needs installed
arm64 *ARGUMENTS:
    tests/aarch64.sh {{ARGUMENTS}}

# the Windows program under Wine; the file says what it needs installed
wine:
    tests/wine.sh

# rewrite what the golden cases expect; read the difference
bless:
    GPUX_BLESS=1 TRYCMD=overwrite cargo test

# rebuild the checked-in components from their sources
guests:
    guest-examples/rebuild.sh

# train the digits model and make its sample photos again
digits:
    python3 -m pip install -r models/requirements.txt
    python3 models/make_digits.py
    python3 models/check_samples.py --write

# train the text models of the examples again, on the descriptions of Debian's packages; needs apt, takes half an hour
text-models:
    python3 -m pip install -r examples/requirements.txt
    python3 models/make_text.py

# how much gpux adds around a model, a sandbox and a start
bench:
    cargo bench

# beside Python, in one run: built-in steps (image, text, audio, tensor), models in other precisions
# (precision), or what these change in answers (quality); the file says what it needs installed. `compare text parity` compares token by token, `compare text random` with random options.
compare GROUP *WHAT:
    python3 benches/compare/{{GROUP}}.py {{WHAT}}

# thousands of cases with random parameters for steps of images, sounds, points, lists and tensors, from the seed on,
# against the libraries they follow; the file says what it needs installed
random-parity CASES="3000" SEED="2":
    python3 tests/reference/builtin/make_random.py --cases {{CASES}} --seed {{SEED}} --out target/random
    GPUX_RANDOM_CASES=$PWD/target/random cargo test --lib reference::random -- --nocapture

# the ONNX project's backend test cases, through gpux and through Python's ONNX Runtime; needs
# tests/onnx/requirements.txt. With `--engine embedded`, thousands of models of one operator as well. With
# `--gpux PROGRAM`, that build of gpux; else a release build is made.
onnx-backend *ARGUMENTS:
    {{ if ARGUMENTS =~ '--gpux' { "true" } else { "cargo build --release" } }}
    python3 tests/onnx/backend.py {{ARGUMENTS}}
    {{ if ARGUMENTS =~ 'embedded' { "python3 tests/onnx/operators.py " + ARGUMENTS } else { "true" } }}

# clients of the Open Inference Protocol (NVIDIA's, KServe's, MLServer's codecs, perf_analyzer) against a live server
oip *ARGUMENTS:
    cargo build
    tests/oip/run.sh --perf-analyzer {{ARGUMENTS}}

# estimators and pipelines of scikit-learn, the same way
estimators *ARGUMENTS:
    cargo build --release
    python3 tests/onnx/estimators.py {{ARGUMENTS}}

# pipelines that `gpux new` makes around the models of packages: the guessed tasks, and their own tests
packages *ARGUMENTS:
    cargo build --release
    python3 tests/onnx/packages.py {{ARGUMENTS}}

# bundles of a model of 512 MiB beside cp and sha256sum; needs 2 GB in the temporary folder
bundles PROGRAM="target/release/gpux":
    python3 benches/bundle.py {{PROGRAM}}

# what attacks on the sandbox come to: time, memory, what a neighbour notices
hostile *ATTACKS:
    cargo bench --bench hostile -- {{ATTACKS}}

# a thousand damaged models with each engine: what they come to, and memory
corrupted:
    cargo bench --bench corrupted

# many more cases of the seeded fuzzing, from the seed on
fuzz ITERATIONS="20000" SEED="1":
    GPUX_FUZZ_ITERATIONS={{ITERATIONS}} GPUX_FUZZ_SEED={{SEED}} cargo test --lib tests::fuzz
    GPUX_FUZZ_ITERATIONS={{ITERATIONS}} GPUX_FUZZ_SEED={{SEED}} cargo test --lib mutated_bundles
    GPUX_FUZZ_ITERATIONS={{ITERATIONS}} GPUX_FUZZ_SEED={{SEED}} cargo test --test hostile -- --nocapture random_calls damaged

# what the checks of the server in tests/serve are run with
_serve-tools:
    test -d target/serve-tools || python3 -m venv target/serve-tools
    target/serve-tools/bin/pip install --quiet -r tests/serve/requirements.txt
    cargo build

# requests made from /openapi.json, right ones and wrong ones, against a live server
schemathesis *ARGUMENTS: _serve-tools
    target/serve-tools/bin/python tests/serve/contract.py {{ARGUMENTS}}

# the code that the server's page offers for copying, run against a live server; needs curl and node
snippets: _serve-tools
    target/serve-tools/bin/python tests/serve/code.py

# the examples of docs/serve.md, against a live server; needs curl
guide: _serve-tools
    target/serve-tools/bin/python tests/serve/guide.py

# clients of OpenAI, Cohere, Hugging Face, LangChain and LlamaIndex, against a live server
clients:
    test -d target/client-tools || python3 -m venv target/client-tools
    target/client-tools/bin/pip install --quiet -r tests/serve/requirements-clients.txt
    cargo build
    target/client-tools/bin/python tests/serve/clients.py
    target/client-tools/bin/python tests/hub/client.py
    test -d target/adapter-tools || python3 -m venv target/adapter-tools
    target/adapter-tools/bin/pip install --quiet -r tests/serve/requirements-adapters.txt
    target/adapter-tools/bin/python tests/serve/adapters.py

# nginx in front of a live server, over Unix sockets; needs curl and Debian's nginx-light, or NGINX
proxies:
    test -d target/proxy-tools || python3 -m venv target/proxy-tools
    target/proxy-tools/bin/pip install --quiet -r tests/serve/requirements-proxies.txt
    cargo build
    target/proxy-tools/bin/python tests/serve/proxies.py

# the tutorial's commands, in an empty folder; needs curl
tutorial:
    cargo build
    python3 tests/tutorial.py

# the server's pages in a real browser, without a window; needs npm and Debian's chromium. With
# --write, the picture in docs/images is made anew.
browser *ARGUMENTS:
    cargo build
    npm install --silent --no-audit --no-fund --prefix target/browser playwright-core@1.65.1
    node tests/serve/browser.mjs {{ARGUMENTS}}

# 200 000 requests over a thousand components: memory must stay what it was
soak:
    cargo bench --bench soak

# requests in instructions, which a busy machine does not change; needs Valgrind
instructions:
    cargo bench --bench instructions

# a step that does nothing, in Rust, JavaScript and Python; needs npm and componentize-py
languages:
    benches/languages.sh

# start-up of the program: cold, warm, both engines
start-up:
    benches/start-up.sh

# clients that hang up mid-body, ten thousand of them
hang-ups ISOLATION="auto":
    GPUX_TEST_ISOLATION={{ISOLATION}} GPUX_HANG_UPS=10000 cargo test --test program releases_resources_of_disconnected_clients

# clients that make the server hold as much as it will, in control groups of 1 and 2 GiB; needs leave to make those
memory-attacks:
    GPUX_MEMORY_ATTACKS=20 cargo test --test program container_memory

# reloads in the middle of a hundred thousand requests
reloads ISOLATION="auto":
    GPUX_TEST_ISOLATION={{ISOLATION}} GPUX_RELOAD_REQUESTS=20000 cargo test --test program reload_under_load

# the tests of the server with each pipeline in a process of its own; those left out count files, threads or batches of
# one process
isolation:
    GPUX_TEST_ISOLATION=pipeline cargo test -p gpux-cli --test program -- http_api server_resilience --skip full_disk --skip thread_limit --skip batch_counters

# native code that does harm in workers, beside neighbours under load: crashes, memory, files, network, processes; then
# memory in a control group of 1 GiB. PYTHON needs the packages onnx and numpy; `--lacking files,network` says what this
# system's confinement lacks
misdeeds PYTHON="python3" *ARGUMENTS:
    cargo build
    {{PYTHON}} tests/isolation/misdeeds.py {{ARGUMENTS}}
    {{PYTHON}} tests/isolation/misdeeds.py --without-namespaces {{ARGUMENTS}}
    {{PYTHON}} tests/isolation/misdeeds.py --container {{ARGUMENTS}}

# the same in a container of podman and runc, whose root is this system's, written to a copy; as root
misdeeds-podman PYTHON="python3" *ARGUMENTS:
    podman run --rm --runtime /usr/sbin/runc --cgroup-manager cgroupfs --ulimit nofile=1024:1024 --ulimit nproc=1000:1000 \
        --network host --env HOME --volume "$HOME:$HOME" --volume "$PWD:$PWD" --workdir "$PWD" --rootfs /:O \
        {{PYTHON}} tests/isolation/misdeeds.py {{ARGUMENTS}}

# the image of deploy/Dockerfile, built without a registry, and run by podman and runc as docs/deploy.md says; as root,
# needs debootstrap. The variable GPUX names the program to put in; else it is a release build
container *ARGUMENTS:
    {{ if env("GPUX", "") == "" { "cargo build --release" } else { "true" } }}
    GPUX="${GPUX:-target/release/gpux}" deploy/image.sh
    python3 tests/container.py {{ARGUMENTS}}

# SIGKILL and SIGSTOP of supervisor, server and workers in several orders, under load
kills PYTHON="python3" *ARGUMENTS:
    {{PYTHON}} tests/isolation/kills.py {{ARGUMENTS}}

# SIGKILL at random moments of commands that change the store
store-kills KILLS="200":
    GPUX_STORE_KILLS={{KILLS}} cargo test --test program store::kills

# what is in deploy/, held against what checks such files
deploy-check:
    deploy/check.sh

# the long suites and the races; not part of the gate
full: check bench (compare "image") (compare "text") (compare "audio") (compare "tensor") (compare "text" "random") random-parity (onnx-backend "--engine embedded") instructions languages start-up hang-ups memory-attacks reloads store-kills (hang-ups "pipeline") (reloads "pipeline") isolation browser proxies deploy-check container

# numbers and speed of a few models on a GPU (CUDA, TensorRT, WebGPU), beside the CPU; exits with 3
# where there is none
gpu-check *ARGUMENTS:
    cargo build --release
    benches/gpu-check.py {{ARGUMENTS}}

# docs/performance.md from benches/results/*.json
performance:
    python3 benches/results/write.py

# the picture of README.md, from a run
picture:
    cargo build --release
    python3 docs/images/pipeline.py

# known vulnerabilities in dependencies; needs the network
advisories:
    cargo deny check advisories
