"""gRPC's own client of reflection: calls without protocol files."""

import queue
import unittest

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from serving import ServedCase, Serving

# Seconds that an answer may take on a busy machine.
PATIENCE = 60
SERVICES = {"inference.GRPCInferenceService", "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
            "grpc.reflection.v1alpha.ServerReflection"}


class Reflection(ServedCase):
    def setUp(self):
        self.channel = grpc.insecure_channel(self.address)
        self.addCleanup(self.channel.close)

    @staticmethod
    def stream(channel, version):
        """The call: the messages of both versions are equal on the wire."""
        return channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            reflection_pb2.ServerReflectionRequest.SerializeToString,
            reflection_pb2.ServerReflectionResponse.FromString)

    def ask(self, version, *requests):
        return list(self.stream(self.channel, version)(iter(requests), timeout=PATIENCE))

    def test_both_versions_list_and_describe_services(self):
        for version in ["v1", "v1alpha"]:
            listed, described, file = self.ask(
                version,
                reflection_pb2.ServerReflectionRequest(list_services=""),
                reflection_pb2.ServerReflectionRequest(file_containing_symbol="inference.ModelInferRequest"),
                reflection_pb2.ServerReflectionRequest(file_by_filename="open_inference.proto"))
            self.assertEqual({service.name for service in listed.list_services_response.service}, SERVICES)
            self.assertEqual(described.file_descriptor_response, file.file_descriptor_response)
            with self.assertRaises(grpc.RpcError) as caught:
                self.ask(version, reflection_pb2.ServerReflectionRequest(file_containing_symbol="no.Such"))
            self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)

    def test_calls_are_made_from_descriptions_alone(self):
        pool = DescriptorPool(ProtoReflectionDescriptorDatabase(self.channel))
        service = pool.FindServiceByName("inference.GRPCInferenceService")
        method = service.methods_by_name["ServerMetadata"]
        request, answer = (message_factory.GetMessageClass(kind) for kind in (method.input_type, method.output_type))
        call = self.channel.unary_unary(f"/{service.full_name}/{method.name}", request.SerializeToString, answer.FromString)
        self.assertEqual(call(request(), timeout=PATIENCE).name, "gpux")
        for method in service.methods:
            self.assertIsNotNone(message_factory.GetMessageClass(method.input_type))

    def test_an_open_stream_ends_with_the_server(self):
        serving = Serving()
        requests = queue.Queue()
        requests.put(reflection_pb2.ServerReflectionRequest(list_services=""))
        with grpc.insecure_channel(serving.address) as channel:
            answers = self.stream(channel, "v1")(iter(requests.get, None), timeout=PATIENCE)
            self.assertTrue(next(answers).list_services_response.service)
            # Without the end of the stream, it would wait for `--drain` and exit with 1.
            self.assertEqual(serving.stop(), 0)
            requests.put(None)


if __name__ == "__main__":
    unittest.main()
