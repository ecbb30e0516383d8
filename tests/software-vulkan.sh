#!/usr/bin/env bash
# Puts Vulkan's loader and a driver that computes on the processor into target/vulkan, for tests of
# what runs on a GPU: SwiftShader, as a package of npm that is made for machines without a GPU has it.
set -euo pipefail
cd "$(dirname "$0")/.."
package=@sparticuz/chromium
into=target/vulkan
npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$into" "$package@153.0.0"
node -e 'const fs = require("fs");
         process.stdout.write(require("zlib").brotliDecompressSync(fs.readFileSync(process.argv[1])));' \
    "$into/node_modules/$package/bin/swiftshader.tar.br" |
    tar x --directory "$into" --no-same-owner libvk_swiftshader.so libvulkan.so.1 vk_swiftshader_icd.json
