# SPDX-License-Identifier: Apache-2.0
"""What members hold alike (python/starling/torch/_state.py): whoever is given its bytes goes on with the
same bits, and what a step that does not count has changed is undone."""
import os
import random
import struct
import sys
import unittest
import warnings
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python"))
try:
    import torch
except ImportError:
    print("skipped: Python has no torch here")
    sys.exit(77)
warnings.filterwarnings("ignore", message="The epoch parameter in")  # SequentialLR's own
import starling  # noqa: E402  (torch comes first)
import starling.torch  # noqa: E402
from starling.torch._loop import as_number  # noqa: E402
from starling.torch._state import OptimizerState, State  # noqa: E402

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "radam": lambda p: torch.optim.RAdam(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "adadelta": lambda p: torch.optim.Adadelta(p),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.01),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
}
SCHEDULERS = {
    "none": lambda o: [],
    "oneCycle": lambda o: [torch.optim.lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=50)],
    "lambda": lambda o: [torch.optim.lr_scheduler.LambdaLR(o, lambda step: 0.9 ** step)],
    "multiStep": lambda o: [torch.optim.lr_scheduler.MultiStepLR(o, [2, 4], gamma=0.5)],
    "warmup": lambda o: [torch.optim.lr_scheduler.SequentialLR(o, [
        torch.optim.lr_scheduler.LinearLR(o, total_iters=3),
        torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=20)], milestones=[3])],
}


class Trainer:
    """A model with running averages, its optimizer and scheduler, and steps that depend on a number."""

    def __init__(self, optimizer, scheduler="none", seed=1):
        torch.manual_seed(seed)
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8),
                                         torch.nn.ReLU(), torch.nn.Linear(8, 2))
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.schedulers = SCHEDULERS[scheduler](self.optimizer)
        self.state = State(self.model, [self.optimizer], self.schedulers)

    def forward(self, number):
        generator = torch.Generator().manual_seed(number)
        inputs = torch.randn(16, 4, generator=generator)
        self.optimizer.zero_grad()
        self.model(inputs).square().mean().backward()

    def step(self, number):
        self.forward(number)
        self.optimizer.step()
        for scheduler in self.schedulers:
            scheduler.step()

    def steps(self, first, end):
        for number in range(first, end):
            self.step(number)

    def take(self, other):
        """What the library does: bytes of the same places."""
        for mine, theirs in zip(self.state.segments, other.state.segments):
            assert (mine.name, mine.dtype, mine.tensor.shape) == \
                (theirs.name, theirs.dtype, theirs.tensor.shape), mine.name
            mine.tensor.copy_(theirs.tensor)

    def bits(self):
        self.state.gather()
        return {one.name: one.tensor.numpy().tobytes() for one in self.state.segments}


class Copies(unittest.TestCase):
    def test_whoever_is_given_the_state_goes_on_with_the_same_bits(self):
        kinds = [(optimizer, "none") for optimizer in OPTIMIZERS]
        kinds += [("adamw", scheduler) for scheduler in SCHEDULERS]
        for optimizer, scheduler in kinds:
            for begun in (0, 2):
                with self.subTest(optimizer=optimizer, scheduler=scheduler, begun=begun):
                    self.check_copy(optimizer, scheduler, begun)

    def check_copy(self, optimizer, scheduler, begun):
        old = Trainer(optimizer, scheduler)
        joiner = Trainer(optimizer, scheduler, seed=2)
        joiner.steps(100, 100 + begun)  # a joiner has none, a laggard other tensors of its own
        old.steps(0, 5)
        old.state.gather()
        joiner.state.gather()
        joiner.take(old)
        joiner.state.adopt()
        self.assertEqual(old.bits(), joiner.bits())
        old.steps(5, 8)
        joiner.steps(5, 8)
        self.assertEqual(old.bits(), joiner.bits())

    def test_a_state_before_the_first_step_is_one_without_tensors(self):
        fresh, laggard = Trainer("momentum"), Trainer("momentum")
        laggard.steps(0, 3)
        laggard.state.gather()
        laggard.take(fresh)
        laggard.state.adopt()
        fresh.steps(0, 2)
        laggard.steps(0, 2)
        self.assertEqual(fresh.bits(), laggard.bits())

    def test_control_without_the_settings_learning_rates_go_apart(self):
        old, joiner = Trainer("sgd", "multiStep"), Trainer("sgd", "multiStep")
        old.steps(0, 5)
        old.state.gather()
        for mine, theirs in zip(joiner.state.segments, old.state.segments):
            if mine.name != "settings":
                mine.tensor.copy_(theirs.tensor)
        joiner.state.adopt()
        old.steps(5, 8)
        joiner.steps(5, 8)
        self.assertNotEqual(old.bits(), joiner.bits())

    def test_memory_stays_while_the_optimizer_works_on_it(self):
        trainer = Trainer("adam")
        trainer.step(0)
        trainer.state.gather()
        places = [one.tensor.data_ptr() for one in trainer.state.segments]
        trainer.steps(1, 4)
        moments = {one.data_ptr() for kept in trainer.optimizer.state.values()
                   for one in kept.values()}
        self.assertLessEqual(moments, set(places), "the optimizer works in the library's memory")

    def test_parameters_with_other_memory_are_put_back(self):
        trainer = Trainer("sgd")
        first = trainer.model[0].weight
        place = first.data_ptr()
        first.data = first.data + 1
        wanted = first.data.clone()
        trainer.state.gather()
        self.assertEqual(place, first.data_ptr())
        self.assertTrue(torch.equal(wanted, first.data))


class Scalers(unittest.TestCase):
    def state(self, scale):
        model = torch.nn.Linear(2, 1)
        # Debian's PyTorch has none that works without a GPU; its state is the same.
        with mock.patch("torch.cuda.is_available", return_value=True):
            scaler = torch.cuda.amp.GradScaler(init_scale=scale)
        return scaler, State(model, [torch.optim.SGD(model.parameters(), lr=0.1)], [], [scaler])

    def test_who_is_given_the_state_has_the_scale_and_a_lost_step_does_not_move_it(self):
        (_, old), (scaler, joiner) = self.state(512.0), self.state(64.0)
        for mine, theirs in zip(joiner.segments, old.segments):
            mine.tensor.copy_(theirs.tensor)
        joiner.adopt()
        self.assertEqual(512.0, scaler.get_scale())
        joiner.gather()
        joiner.keep()
        scaler.load_state_dict({**scaler.state_dict(), "scale": 2.0, "_growth_tracker": 9})
        joiner.restore()
        self.assertEqual((512.0, 0), (scaler.get_scale(), scaler.state_dict()["_growth_tracker"]))

    def test_one_that_is_not_enabled_has_no_state(self):
        model = torch.nn.Linear(2, 1)
        scaler = torch.cuda.amp.GradScaler(enabled=False)
        state = State(model, [torch.optim.SGD(model.parameters(), lr=0.1)], [], [scaler])
        state.gather()
        state.adopt()


class Undone(unittest.TestCase):
    def test_what_a_step_that_does_not_count_has_changed_is_as_before(self):
        trainer = Trainer("adam", "oneCycle")
        trainer.steps(0, 3)
        before = trainer.bits()
        trainer.state.keep()
        trainer.forward(3)  # running averages
        for group in trainer.optimizer.param_groups:
            group["lr"] = 7.0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer.schedulers[0].step()
        trainer.state.restore()
        self.assertEqual(before, trainer.bits())

    def test_control_without_it_everything_has_moved(self):
        trainer = Trainer("adam", "oneCycle")
        trainer.steps(0, 3)
        before = trainer.bits()
        trainer.forward(3)
        trainer.schedulers[0].step()
        after = trainer.bits()
        self.assertEqual({"1.running_mean", "1.running_var", "1.num_batches_tracked", "settings"},
                         {name for name, bits in before.items() if after[name] != bits})


class Refused(unittest.TestCase):
    def refusal(self, make):
        with self.assertRaises(ValueError) as raised:
            make()
        return str(raised.exception)

    def test_what_cannot_be_elastic_is_named(self):
        model = torch.nn.Linear(3, 2)
        lbfgs = torch.optim.LBFGS(model.parameters())
        self.assertIn("closure", self.refusal(lambda: OptimizerState("optimizer", lbfgs)))
        conv = torch.nn.Conv2d(2, 2, 3).to(memory_format=torch.channels_last)
        sgd = torch.optim.SGD(conv.parameters(), lr=0.1)
        self.assertIn("weight is not contiguous", self.refusal(lambda: State(conv, [sgd], [])))
        complex_model = torch.nn.ParameterList([torch.zeros(2, dtype=torch.complex64)])
        sgd = torch.optim.SGD(complex_model.parameters(), lr=0.1)
        self.assertIn("complex64", self.refusal(lambda: State(complex_model, [sgd], [])))

    def test_settings_too_long_for_their_place_are_refused(self):
        trainer = Trainer("sgd")
        trainer.optimizer.param_groups[0]["note"] = "x" * (1 << 18)
        with self.assertRaises(RuntimeError) as raised:
            trainer.state.gather()
        self.assertIn("at most", str(raised.exception))


class Forged(unittest.TestCase):
    def test_settings_that_nobody_has_written_are_refused_by_name_whatever_they_are(self):
        choice = random.Random(1)
        refused = 0
        for _ in range(400):
            trainer = Trainer("adam", "warmup")
            memory = trainer.state.segments[-1].tensor
            size = int.from_bytes(memory[:8].numpy().tobytes(), "little")
            for _ in range(choice.randint(1, 6)):
                memory[choice.randrange(8 + size)] = choice.randrange(256)
            if choice.random() < 0.2:
                told = choice.choice(('{"groups":[[{"lr":{}}]],"schedulers":[[]],"scalers":[]}', "[" * 99999,
                                      "[]", "null", '{"groups":7}', ""))
                whole = struct.pack("<q", len(told)) + told.encode()
                memory[:len(whole)] = torch.frombuffer(bytearray(whole), dtype=torch.uint8)
            try:
                trainer.state.adopt()
            except ValueError as error:
                self.assertIn("settings: what the state says", str(error))
                refused += 1
        self.assertLess(100, refused)


class Logged(unittest.TestCase):
    def test_a_loss_that_is_part_of_a_graph_is_a_number_without_a_warning(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # PyTorch 2.15 has one
            self.assertEqual(2.0, as_number(2 * torch.ones((), requires_grad=True)))
        self.assertEqual(0.5, as_number(0.5))


class SaveTest(unittest.TestCase):
    def test_only_the_model_of_an_elastic_loop_is_saved(self):
        for save in (starling.save, starling.torch.save):
            with self.assertRaisesRegex(ValueError, r"starling\.elastic\(\) was given"):
                save(torch.nn.Linear(1, 1))


if __name__ == "__main__":
    unittest.main()
