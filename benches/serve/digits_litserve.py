"""The digits behind LitServe: `python digits_litserve.py PORT`. The photo comes as base64 in JSON."""

import base64
import sys

import litserve
from digits_twin import Digits


class Api(litserve.LitAPI):
    def setup(self, device):
        self.digits = Digits()

    def decode_request(self, request):
        return base64.b64decode(request["image"])

    def predict(self, x):
        return self.digits(x)

    def encode_response(self, output):
        return output


if __name__ == "__main__":
    server = litserve.LitServer(Api(), accelerator="cpu", workers_per_device=1, fast_queue=True)
    server.run(host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False, log_level="warning")
