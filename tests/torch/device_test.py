# SPDX-License-Identifier: Apache-2.0
"""Models on a device (python/starling/torch/_device.py): what the library is given is what lies there, and
what it gives comes there. The device is standin_device.cc's, whose memory the host cannot read; what CUDA
does besides (streams, events, page-locked memory) is played by objects that note in which order they are
asked."""
import contextlib
import ctypes
import io
import os
import signal
import subprocess
import sys
import unittest
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python"))
try:
    import torch
except ImportError:
    print("skipped: Python has no torch here")
    sys.exit(77)
import standin  # noqa: E402

import starling.torch  # noqa: E402
from starling.torch import _device, _gradients, _reproducible, _sharded  # noqa: E402
from starling.torch._device import Copies, CudaTransfer, Transfer  # noqa: E402
from starling.torch._diloco import DiLoCo, Outer  # noqa: E402
from starling.torch._gradients import Gradients  # noqa: E402
from starling.torch._state import Segment, State  # noqa: E402

DEVICE = standin.load() if standin.fits() else torch.device("cpu")
on_device = unittest.skipUnless(standin.fits(), "the stand-in device was not built for this PyTorch")
CPU = torch.device("cpu")
OPTIMIZERS = {
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.01),
}


def make_model(devices, seed=1):
    """A small network of convolutions with running averages; its last layer lies on the last device."""
    torch.manual_seed(seed)
    first, last = devices[0], devices[-1]
    return torch.nn.ModuleDict({
        "body": torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(),
                                    torch.nn.Flatten()).to(first),
        "head": torch.nn.Linear(4 * 36, 3).to(last)})


def loss_of(model, number, rows=slice(None)):
    generator = torch.Generator().manual_seed(number)
    inputs = torch.randn(12, 1, 8, 8, generator=generator)[rows]
    labels = torch.randint(0, 3, (12,), generator=generator)[rows]
    first, last = model["body"][0].weight.device, model["head"].weight.device
    outputs = model["head"](model["body"](inputs.to(first)).to(last))
    return torch.nn.functional.cross_entropy(outputs, labels.to(last))


class Trainer:
    """Steps that depend on a number, and the state as the library has it."""

    def __init__(self, devices, optimizer="momentum", seed=1):
        self.model = make_model(devices, seed)
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        self.state = State(self.model, [self.optimizer], [])
        self.copies = Copies(self.state.segments)

    def steps(self, first, end):
        for number in range(first, end):
            self.optimizer.zero_grad()
            loss_of(self.model, number).backward()
            self.optimizer.step()

    def show(self):
        """As at a boundary where somebody reads: the bytes by name."""
        self.state.gather()
        self.copies.refresh()
        return {one.name: memory.numpy().tobytes() for one, memory, _ in self.copies.given}

    def take(self, other):
        """As a joiner does: bytes of the same places."""
        self.state.gather()
        for (_, memory, _), (_, theirs, _) in zip(self.copies.given, other.copies.given):
            memory.copy_(theirs)
        self.copies.spread()
        self.state.adopt()


@on_device
class StandIn(unittest.TestCase):
    def test_its_memory_is_not_the_hosts(self):
        code = ("import standin, torch, ctypes; d = standin.load(); t = torch.ones(4, device=d); "
                "assert t.cpu().sum().item() == 4; print('here', flush=True); "
                "ctypes.string_at(t.data_ptr(), 4)")
        done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, check=False,
                              cwd=os.path.dirname(os.path.abspath(__file__)))
        self.assertEqual((-signal.SIGSEGV, "here\n"), (done.returncode, done.stdout), done.stderr)

    def test_what_is_trained_there_is_what_is_trained_on_the_host(self):
        for optimizer in OPTIMIZERS:
            with self.subTest(optimizer):
                there, here = Trainer([DEVICE], optimizer), Trainer([CPU], optimizer)
                there.steps(0, 4)
                here.steps(0, 4)
                self.assertEqual(here.show(), there.show())


@on_device
class StateCopies(unittest.TestCase):
    def test_whoever_is_given_the_copies_goes_on_with_the_same_bits(self):
        for devices in ([DEVICE], [CPU, DEVICE], [DEVICE, CPU]):
            for optimizer in OPTIMIZERS:
                with self.subTest(devices=devices, optimizer=optimizer):
                    old, joiner = Trainer(devices, optimizer), Trainer(devices, optimizer, seed=2)
                    old.steps(0, 3)
                    old.show()
                    joiner.take(old)
                    old.steps(3, 5)
                    joiner.steps(3, 5)
                    self.assertEqual(old.show(), joiner.show())

    def test_control_copies_that_were_not_brought_up_to_date_are_another_state(self):
        old, joiner = Trainer([DEVICE]), Trainer([DEVICE], seed=2)
        old.show()
        old.steps(0, 3)
        old.state.gather()
        joiner.take(old)
        self.assertNotEqual(old.show(), joiner.show())

    def test_what_lies_on_a_device_is_told_as_a_copy_and_nothing_else_is(self):
        trainer = Trainer([CPU, DEVICE])
        told = {one.name: copied for one, _, copied in trainer.copies.given}
        self.assertEqual((False, True), (told["body.0.weight"], told["head.weight"]))
        self.assertEqual((False, False), (told["settings"], told["optimizer/present"]))
        for one, memory, copied in trainer.copies.given:
            self.assertEqual("cpu", memory.device.type)
            self.assertEqual(copied, memory is not one.tensor)

    def test_between_two_requests_nothing_crosses_to_the_host(self):
        trainer = Trainer([DEVICE])
        trainer.steps(0, 1)
        trainer.state.gather()
        before = torch.ops.starling_standin.copies()
        trainer.state.gather()
        trainer.state.keep()
        trainer.state.restore()
        self.assertEqual(before, torch.ops.starling_standin.copies())
        trainer.copies.refresh()
        crossed = torch.ops.starling_standin.copies() - before
        self.assertEqual(sum(copied for _, _, copied in trainer.copies.given), crossed)

    def test_a_step_that_does_not_count_is_undone_without_the_copies(self):
        trainer = Trainer([DEVICE])
        trainer.steps(0, 2)
        before = trainer.show()
        trainer.state.keep()
        loss_of(trainer.model, 2)  # running averages
        trainer.optimizer.param_groups[0]["lr"] = 7.0
        for _, memory, copied in trainer.copies.given:
            if copied:
                memory.zero_()
        trainer.state.restore()
        self.assertEqual(before, trainer.show())

    def test_a_model_that_was_moved_is_named(self):
        trainer = Trainer([CPU])
        trainer.state.modules.check_devices()
        trainer.model.to(DEVICE)
        with self.assertRaisesRegex(RuntimeError, "body.0.weight was moved from cpu to privateuseone:0"):
            trainer.state.modules.check_devices()

    def test_a_model_that_is_moved_behind_the_loop_leaves_what_it_was(self):
        trainer = Trainer([DEVICE])
        trainer.steps(0, 2)
        before = trainer.show()
        trainer.model.to(CPU)
        self.assertEqual(before, trainer.show())

    def test_a_copy_that_fails_names_its_tensor(self):
        class Full:
            device = DEVICE

            def copy_(self, *_, **__):
                raise RuntimeError("out of memory")
        with self.assertRaisesRegex(RuntimeError, "body.weight could not be copied from cpu to privateuseone:0: "
                                                  "out of memory"):
            _device.copy("body.weight", Full(), torch.zeros(1))

    def test_tensors_without_values_and_groups_on_a_device_are_refused(self):
        model = torch.nn.Linear(2, 2, device="meta")
        with self.assertRaisesRegex(ValueError, "weight lies on meta"):
            State(model, [torch.optim.SGD(model.parameters(), lr=0.1)], [])
        with self.assertRaisesRegex(ValueError, "w lies on privateuseone:0: the processes of a group"):
            _sharded._check_host("w", torch.zeros(1, device=DEVICE))

    def test_members_of_a_reproducible_job_on_other_devices_are_told_apart(self):
        self.assertNotIn("devices", _reproducible.identity())
        self.assertIn("devices=privateuseone", _reproducible.identity([DEVICE]))
        properties = mock.Mock(major=9, minor=0)
        properties.name = "NVIDIA H100"
        with mock.patch("torch.cuda.get_device_properties", return_value=properties):
            self.assertIn("devices=NVIDIA-H100/9.0/cuda", _reproducible.identity([torch.device("cuda:0")]))


class FakeLibrary:
    """A member that is alone, or `others` whose gradients are all ones."""

    def __init__(self, others=0.0):
        self.sizes = []
        self.said = []  # in the order in which it was told
        self.others = others
        self.committed = True

    def add_bucket(self, elements):
        self.sizes.append(elements)

    def gradients(self):
        self.memory = (ctypes.c_float * sum(self.sizes))()
        self.flat = torch.frombuffer(self.memory, dtype=torch.float32)
        self.at_ready = {}
        return ctypes.addressof(self.memory), sum(self.sizes)

    def ready(self, bucket):
        begin = sum(self.sizes[:bucket])
        self.at_ready[bucket] = self.flat[begin:begin + self.sizes[bucket]].clone()
        self.said.append(bucket)

    def reduce(self, weight):
        self.said.append("reduce")
        if not self.committed:
            return 0
        for bucket, numbers in self.at_ready.items():
            begin = sum(self.sizes[:bucket])
            self.flat[begin:begin + self.sizes[bucket]] = numbers
        self.flat.add_(self.others).div_(weight + self.others)
        return 1


class Exchanged:
    """A model and its gradients' way to a library."""

    def __init__(self, devices, others=0.0, zeros=False):
        self.model = make_model(devices)
        self.library = FakeLibrary(others)
        self.gradients = Gradients(self.library, list(self.model.named_parameters()),
                                   list(self.model.named_buffers()), 256, zeros=zeros)
        self.gradients.open()

    def step(self, *parts):
        """Each part: its weight, and which of the samples it has."""
        self.gradients.begin(len(parts))
        for weight, rows in parts:
            self.gradients.begin_part(weight)
            loss_of(self.model, 1, rows).backward()
        return self

    def found(self):
        return [None if one.grad is None else one.grad.cpu().numpy().tobytes()
                for one in self.model.parameters()] + [
            one.cpu().numpy().tobytes() for one in self.model.buffers()]


@on_device
class GradientsOfADevice(unittest.TestCase):
    PLACES = ([DEVICE], [CPU, DEVICE], [DEVICE, CPU])

    def check(self, *parts, others=0.0):
        expected = Exchanged([CPU], others).step(*parts)
        for devices in self.PLACES:
            with self.subTest(devices=devices):
                found = Exchanged(devices, others).step(*parts)
                self.assertEqual(expected.found(), found.found())
                self.assertEqual(sorted(expected.library.at_ready), sorted(found.library.at_ready))
                for bucket, numbers in expected.library.at_ready.items():
                    self.assertTrue(torch.equal(numbers, found.library.at_ready[bucket]), bucket)

    def test_are_what_they_are_on_the_host(self):
        self.check((1.0, slice(None)))
        self.check((12.0, slice(None)), others=3.0)

    def test_of_several_batches_are_added_up(self):
        self.check((5.0, slice(0, 5)), (7.0, slice(5, 12)), others=2.0)

    def test_of_a_member_without_samples_are_zeros(self):
        self.check((0.0, slice(0, 2)), others=2.0)
        self.check((0.0, slice(0, 2)), (4.0, slice(0, 4)), others=2.0)
        self.check((4.0, slice(0, 4)), (0.0, slice(0, 2)), others=2.0)

    def test_of_a_step_that_does_not_count_are_none_or_zeros(self):
        for zeros in (False, True):
            one = Exchanged([DEVICE], zeros=zeros)
            one.library.committed = False
            averages = [buffer.cpu().numpy().tobytes() for buffer in one.model.buffers()]
            one.step((1.0, slice(None)))
            self.assertFalse(one.gradients.committed)
            for parameter in one.model.parameters():
                if zeros:
                    self.assertEqual(0, parameter.grad.cpu().abs().max().item())
                else:
                    self.assertIsNone(parameter.grad)
            self.assertEqual(len(averages), len(list(one.model.buffers())))

    def test_that_nobody_has_are_none_and_those_that_others_have_come(self):
        for others in (0.0, 2.0):
            one = Exchanged([DEVICE], others)
            one.gradients.begin(1)
            one.gradients.begin_part(1.0)
            one.model["head"](torch.ones(1, 144, device=DEVICE)).sum().backward()
            gradient = one.model["body"][0].weight.grad
            self.assertEqual(others == 0.0, gradient is None)
            if gradient is not None:
                self.assertEqual(DEVICE, gradient.device)
                self.assertAlmostEqual(2.0 / 3.0, gradient.cpu()[0, 0, 0, 0].item(), 6)

    def test_that_are_sparse_are_refused_by_name(self):
        place = _gradients._Place("table", torch.nn.Parameter(torch.zeros(2, 2)), 0, 0)
        place.transfer = Transfer()
        sparse = torch.sparse_coo_tensor(torch.tensor([[0]]), torch.ones(1, 2), (2, 2))
        with self.assertRaisesRegex(RuntimeError, "the gradient of table is sparse"):
            Gradients._add(place, sparse, 1.0)


class LateTransfer(Transfer):
    """A device that copies when somebody looks for the second time, or waits."""

    honest = True

    def __init__(self):
        self.begun = []
        self.looks = 0
        self.waits = 0

    def carry(self, name, into, source):
        self.begun.append((into, source))

    def mark(self):
        return len(self.begun)

    def passed(self, mark):
        self.looks += 1
        if self.looks % 2 == 0:
            self._do(mark)
        return not self.honest or all(one is None for one in self.begun[:mark])

    def wait(self, mark):
        self.waits += 1
        self._do(mark)

    def _do(self, mark):
        for index in range(mark):
            if self.begun[index] is not None:
                into, source = self.begun[index]
                into.copy_(source)
                self.begun[index] = None


@on_device
class Overlap(unittest.TestCase):
    def step(self):
        with mock.patch.object(_gradients, "transfer_of", lambda device: LateTransfer()):
            return Exchanged([DEVICE]).step((1.0, slice(None)))

    def test_a_bucket_is_handed_over_when_it_has_arrived_during_backward_or_at_its_end(self):
        found = self.step()
        self.assertEqual(Exchanged([CPU]).step((1.0, slice(None))).found(), found.found())
        transfer, = {place.transfer for place in found.gradients._places}
        buckets = len(found.library.sizes) - 1
        self.assertLess(transfer.waits, buckets, "some had arrived before the end of backward")
        self.assertGreater(transfer.waits, 0, "the last ones were waited for")
        self.assertEqual([*range(buckets + 1), "reduce"], found.library.said)
        self.assertTrue(all(place.sum is None for place in found.gradients._places), "nothing is kept")

    def test_control_a_bucket_that_is_handed_over_before_it_has_arrived_is_another(self):
        with mock.patch.object(LateTransfer, "honest", False):
            found = self.step()
        self.assertNotEqual(Exchanged([CPU]).step((1.0, slice(None))).found(), found.found())

    def test_what_an_interrupted_backward_has_left_behind_is_not_handed_over(self):
        with mock.patch.object(_gradients, "transfer_of", lambda device: LateTransfer()):
            found = Exchanged([DEVICE])

            def fail(_):
                raise ValueError("in the program")
            found.gradients.begin(1)
            found.gradients.begin_part(1.0)

            def fail_later(module, inputs, output):
                output.register_hook(fail)
            handle = found.model["body"][0].register_forward_hook(fail_later)
            with self.assertRaises(ValueError):
                loss_of(found.model, 1).backward()
            handle.remove()
            said = len(found.library.said)
            found.gradients.begin(1)
            self.assertEqual(said, len(found.library.said))


class Cuda(unittest.TestCase):
    """What CUDA is asked, in which order; no GPU is here."""

    def transfer(self, told):
        class Stream:
            def __init__(self, name):
                self.name = name

            def wait_stream(self, other):
                told.append(f"{self.name} waits for {other.name}")

            def synchronize(self):
                told.append(f"host waits for {self.name}")

        class Event:
            def record(self, stream):
                told.append(f"event in {stream.name}")

            def query(self):
                return True

            def synchronize(self):
                told.append("host waits for event")

        @contextlib.contextmanager
        def in_stream(stream):
            told.append(f"in {stream.name}")
            yield
            told.append(f"out of {stream.name}")

        cuda = torch.device("cuda:0")
        patches = mock.patch.multiple(
            "torch.cuda", Stream=lambda device: Stream("side"), Event=Event, stream=in_stream,
            current_stream=lambda device: Stream("current"),
            synchronize=lambda device: told.append(f"host waits for {device}"))
        return cuda, patches

    def test_a_copy_waits_for_the_kernels_before_it_and_its_event_stands_behind_it(self):
        told = []
        cuda, patches = self.transfer(told)
        with patches:
            transfer = _device.transfer_of(cuda)
            self.assertIsInstance(transfer, CudaTransfer)
            into = mock.Mock(device=CPU)
            into.copy_.side_effect = lambda source, non_blocking: told.append(f"copy, host goes on: {non_blocking}")
            transfer.carry("w", into, mock.Mock(device=cuda))
            mark = transfer.mark()
            self.assertTrue(transfer.passed(mark))
            transfer.wait(mark)
        self.assertEqual(["side waits for current", "in side", "copy, host goes on: True", "out of side",
                          "event in side", "host waits for event"], told)

    def test_the_state_is_copied_behind_all_kernels_and_before_anybody_reads(self):
        told = []
        cuda, patches = self.transfer(told)
        segments = [Segment("w", torch.ones(40_000), True), Segment("v", torch.ones(3), True)]
        with patches, mock.patch.object(_device, "on_host", return_value=False), \
                mock.patch.object(_device, "devices_of", return_value=[cuda]), \
                mock.patch.object(_device, "page_lock") as locked, \
                mock.patch.object(_device, "copy", lambda name, *_, wait: told.append(f"{name}, waits: {wait}")):
            copies = Copies(segments)
            copies.refresh()
        locked.assert_called_once()
        self.assertEqual(160_064, locked.call_args[0][0].numel(), "all in one piece")
        self.assertEqual(["host waits for cuda:0", "w, waits: False", "v, waits: False", "host waits for cuda:0"],
                         told)

    def test_memory_that_cannot_be_page_locked_is_used_as_it_is_and_told(self):
        cuda = torch.device("cuda:0")
        memory = torch.zeros(1 << 14)
        runtime = mock.Mock()
        for code, locked in ((0, True), (2, False)):
            runtime.cudaHostRegister.return_value = code
            with mock.patch("torch.cuda.cudart", return_value=runtime), \
                    contextlib.redirect_stderr(io.StringIO()) as told:
                self.assertEqual(locked, _device.page_lock(memory, cuda))
            self.assertEqual(not locked, "65536 bytes of the host's memory are not page-locked" in told.getvalue())
        runtime.cudaHostRegister.assert_called_with(memory.data_ptr(), 65536, 0)
        self.assertFalse(_device.page_lock(memory, torch.device("privateuseone:0")))


@on_device
class Outers(unittest.TestCase):
    """DiLoCo's outer steps."""

    def outer(self, devices):
        trainer = Trainer(devices)
        library = FakeLibrary()
        outer = Outer(library, trainer.state, DiLoCo(2), samples=4, bucket_bytes=4096)
        outer.open()
        outer.take()
        return trainer, outer

    def test_are_what_they_are_on_the_host(self):
        digests = []
        for devices in ([CPU], [DEVICE], [CPU, DEVICE]):
            trainer, outer = self.outer(devices)
            for first in (0, 2):
                trainer.steps(first, first + 2)
                self.assertTrue(outer.reduce(4.0, range(4)))
                outer.step([(1, one) for one in range(4)], whole=True)
                outer.give()
            digests.append((outer.digest(), trainer.show()))
            self.assertTrue(all(one.tensor.device.type == "cpu" for one in outer.segments))
        self.assertEqual(digests[0], digests[1])
        self.assertEqual(digests[0], digests[2])


if __name__ == "__main__":
    unittest.main()
