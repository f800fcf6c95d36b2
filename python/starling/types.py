# SPDX-License-Identifier: Apache-2.0
"""The messages of Starling's REST interface as types: JSON objects that a type checker understands.

Generated from api/proto and api/rest by `make generate`; docs/reference/trainingjob.md and
docs/reference/rest.md describe the same. A key that a class does not require may be absent.
"""
from __future__ import annotations

from typing import Any, Literal, TypedDict


# Activations and errors instead of gradients. For units of work of few samples beside the layers'
# widths.
ActivationsUpdate = dict[str, Any]


# Adagrad, and AdaRevision.
class Adagrad(TypedDict, total=False):
    # Added to the denominator.
    epsilon: float
    # Step size.
    learningRate: float


# Adam and AdamW.
class Adam(TypedDict, total=False):
    # Decay of the mean of gradients.
    beta1: float
    # Decay of the mean of squared gradients.
    beta2: float
    # Added to the denominator.
    epsilon: float
    # Step size.
    learningRate: float
    # Weight decay.
    weightDecay: float


# Pooling to a size.
class AdaptivePooling(TypedDict):
    # Height and width that it gives.
    size: int


# Gradients are summed among all workers.
class AllReduce(TypedDict, total=False):
    # How.
    algorithm: Literal["Auto", "Ring", "Naive", "HalvingDoubling", "RecursiveDoubling", "Tree"]
    # Gradients are summed up in buckets of at least this many bytes, the last layer's first. Not
    # given: of sizes from 1 MiB to 64 MiB the one with which steps are shortest, found in the
    # first steps whenever workers come or go.
    bucketBytes: int


# Nobody waits.
Asynchronous = dict[str, Any]


class _AttentionRequired(TypedDict):
    # How many heads; they divide the width.
    heads: int


# Multi-head self-attention.
class Attention(_AttentionRequired, total=False):
    # Whether a place sees only those before it and itself.
    causal: bool


# Changes of images by chance.
class Augmentation(TypedDict, total=False):
    # Whether one half of the images are mirrored, left to right.
    flip: bool
    # A part of the image, anywhere in it, at the size of shape; without it, the largest part
    # around the middle.
    randomCrop: RandomCrop


class _AutoencoderRequired(TypedDict):
    # The network, as of a classification; it gives as many numbers as a sample has. Its own named
    # network is autoencoder.
    model: Model


# A network that is to give each sample back. Labels, if the data have any, are not looked at: of
# csv data labelColumn or labelColumns, by default the column "label" if there is one, are left
# out.
class Autoencoder(_AutoencoderRequired, total=False):
    # What its tensors begin with, instead of numbers drawn from the seed.
    initialModel: InitialModel
    # What training lowers: of a sample, its mean over the numbers.
    loss: Literal["SquaredError", "BinaryCrossEntropy"]


# Fully connected layers with rectified linear units between, but for the narrowest, whose numbers
# are the sample's code: with one width alone, principal components.
class AutoencoderNetwork(TypedDict, total=False):
    # Width of each layer from the input to the narrowest, such as [128, 16]; the way back is its
    # mirror.
    hidden: list[int]


class _AvoidedNodeRequired(TypedDict):
    # Its name.
    name: str


# A node on which too many pods of the job failed.
class AvoidedNode(_AvoidedNodeRequired, total=False):
    # Failures there lately.
    failures: int
    # When the last of them was noticed.
    lastFailureTime: str
    # Until then new pods of the job are not placed there; not given: they may be.
    until: str


# The upper 16 bits of 32.
BFloat16Codec = dict[str, Any]


# The slowest of each clock are left out.
class BackupWorkers(TypedDict, total=False):
    # So many.
    backups: int


# Batch normalization: by means and variances of the samples that are computed together (a worker's
# share of a batch; with spec.reproducible a group of it), in validation by running ones, which are
# part of the model.
class BatchNorm(TypedDict, total=False):
    # Added to the variance.
    epsilon: float
    # How fast the running means follow.
    momentum: float


# Reads lack at most the last units of work.
class BoundedDelay(TypedDict, total=False):
    # So many.
    delay: int


# Everyone waits for everyone.
BulkSynchronous = dict[str, Any]


class Caller(TypedDict):
    name: str


# When and where checkpoints are written.
class Checkpoint(TypedDict, total=False):
    # Time between two; the job's end and its suspension write one too.
    interval: str
    # How many are kept.
    keep: int
    # Where, and the model too: a path, file:///path or s3://bucket/prefix; by default the job's
    # folder on one machine, each worker's own disk in a cluster.
    uri: str


# A checkpoint that is whole.
class CheckpointStatus(TypedDict, total=False):
    # Its state id, (incarnation)-(view)-(step).
    name: str
    # The settled step that it holds.
    step: int
    # When it was whole.
    time: str
    # Where it lies.
    uri: str


class _ClassificationRequired(TypedDict):
    # The network.
    model: Model


# Supervised classification.
class Classification(_ClassificationRequired, total=False):
    # How much each class's samples count in the training loss, a number for each class; by default
    # all count 1. Validation counts all alike.
    classWeights: list[float]
    # What its tensors begin with, instead of numbers drawn from the seed.
    initialModel: InitialModel
    # Share of each label that is spread over all classes in training (Szegedy et al. 2016);
    # validation takes labels as they are.
    labelSmoothing: float


# How a number travels. Those that encode tensors leave vectors, such as biases, and tensors of
# fewer than 512 numbers as they are. Whoever holds the model keeps 32 bits.
class Codec(TypedDict, total=False):
    # Its upper 16 bits, rounded to nearest: half the bytes, each number within 0.4 percent.
    bfloat16: BFloat16Codec
    # Deep gradient compression (Lin et al. 2018): as topK of velocities, with momentum correction
    # and masking. What is not sent is kept, whether or not errorFeedback says so.
    deepGradientCompression: DeepGradientCompressionCodec
    # As deepGradientCompression, and tensors whose magnitudes spread wider send a larger share;
    # after Kuang et al. 2019, by a rule of our own.
    entropyTopK: EntropyTopKCodec
    # IEEE 754 half precision, rounded to nearest: half the bytes, each number from 0.00006 to
    # 65504 within 0.05 percent.
    float16: Float16Codec
    # As it is: 32 bits.
    identity: IdentityCodec
    # A byte: one of 255 levels, with a scale for each tensor that clips where that loses least.
    int8: Int8Codec
    # A byte: its sign and its logarithm, in steps of an eighth of a factor of two.
    logarithmic: LogarithmicCodec
    # 1-bit SGD (Seide et al. 2014): its sign; and for each row of its matrix the means of what is
    # below 0 and of what is not.
    oneBit: OneBitCodec
    # Sparse binary compression (Sattler et al. 2019): of each tensor its most positive or its most
    # negative numbers, all as their mean, about one byte each.
    sparseBinary: SparseBinaryCodec
    # TernGrad (Wen et al. 2017): its sign times the tensor's largest magnitude, or 0, drawn so
    # that the mean is right: 2 bits.
    ternGrad: TernGradCodec
    # Of each tensor the numbers beyond a threshold, as that threshold with their sign (Strom
    # 2015): 4 bytes each.
    threshold: ThresholdCodec
    # Gradient dropping (Aji and Heafield 2017): of each tensor the numbers of the largest
    # magnitudes, 8 bytes each.
    topK: TopKCodec


# In which form updates travel, and what of them is left out.
class Compression(TypedDict, total=False):
    # The form of each number.
    codec: Codec
    # What a codec has left out of one update is added to the next.
    errorFeedback: bool
    # The rows of a push are named, not listed, where the receiver was told them before, with the
    # read of the same unit of work. For sparse workloads, which do so unless this is false.
    keyCache: bool
    # The KKT filter (Li et al. 2014): gradients that cannot change their weight, which was read as
    # 0, do not travel: those of at most l1.
    kktFilter: bool
    # For so many steps codecs that encode tensors lose less: all numbers travel as they are; of
    # those that send a share of them a quarter does, then a sixteenth, a 64th and a 256th.
    warmupSteps: int


class _ConditionRequired(TypedDict):
    # Created, Running, Restarting, Suspended, Succeeded or Failed.
    type: str


# Kubernetes' metav1.Condition.
class Condition(_ConditionRequired, total=False):
    # When the status last changed.
    lastTransitionTime: str
    # A sentence for people.
    message: str
    # The generation of the spec that this condition speaks of.
    observedGeneration: int
    # One CamelCase word.
    reason: str
    # True, False or Unknown.
    status: str


# Who may read what from the servers, and what is applied when. A worker's clock is the number of
# units of work that it has pushed; with bulkSynchronous, the number of batches that are applied.
class Consistency(TypedDict, total=False):
    # Nobody waits.
    asynchronous: Asynchronous
    # The slowest pushes of each clock are not waited for, and are left out (Chen et al. 2016).
    backupWorkers: BackupWorkers
    # All but the last units of work, numbered over all workers, are in what a worker reads.
    boundedDelay: BoundedDelay
    # Everyone waits for everyone: the gradients of one batch of dataset.globalBatchSize samples
    # are one update, as in an allreduce, however many workers there are.
    bulkSynchronous: BulkSynchronous
    # The same, with updates sent early within a budget (Wei et al. 2015).
    eagerStaleSynchronous: EagerStaleSynchronous
    # One update of every so many pushes (Zhang et al. 2016).
    softSync: SoftSync
    # No worker is more than so many clocks ahead of the slowest (Ho et al. 2013).
    staleSynchronous: StaleSynchronous


# The learning rate stays.
ConstantSchedule = dict[str, Any]


# Bring your own container. The image and the command stand in spec.replicaSpecs.worker.template,
# in the container "trainer"; it runs unchanged. There is no coordinator: when the number of
# workers changes, all of them are started again with new variables, and your program goes on from
# its own checkpoint.
class Container(TypedDict, total=False):
    # Whose variables the containers get.
    framework: Literal["PyTorch", "TensorFlow", "Dmlc", "Plain"]
    # The port of the rendezvous, on the worker of rank 0.
    port: int
    # Training processes in each pod: PET_NPROC_PER_NODE, and a factor of WORLD_SIZE.
    processesPerPod: int


# All workers of a job that brings its own container start together and know one another's number.
class ContainerRound(TypedDict, total=False):
    # Which one, from 1; it grows whenever all workers are started again.
    number: int
    # How many workers it has: WORLD_SIZE is this times processesPerPod.
    workers: int


class _ConvolutionRequired(TypedDict):
    # Channels that it gives.
    channels: int
    # Side of the kernel.
    kernel: int


# A convolution with a square kernel.
class Convolution(_ConvolutionRequired, total=False):
    # Whether it has biases; before a normalization they have no effect.
    bias: bool
    # Groups of channels that do not see one another; as many as channels: depthwise.
    groups: int
    # How it begins.
    initialization: Literal["Uniform", "Kaiming"]
    # Zeros around the image.
    padding: int
    # Step between two places.
    stride: int


# Which coordinator process leads.
class CoordinatorGrant(TypedDict, total=False):
    # The random id of the process that has it.
    bootId: str
    # Its number; members refuse lower ones.
    incarnation: int
    # The pod that it runs in.
    podUid: str
    # Who leads next, without being told, if that process falls silent.
    standby: StandbyGrant


# The coordinator's pod.
class CoordinatorSpec(TypedDict, total=False):
    # What an exit means for the job.
    restartPolicy: Literal["OnFailure", "ExitCode", "Never"]
    # A second coordinator waits, on another node where there is one, and leads within seconds
    # where the first falls silent, also while no controller is there to say so. Each change of who
    # trains together is told to it first; steps do not wait for it.
    standby: bool
    # A PodTemplateSpec, merged over the defaults; its container is called "trainer".
    template: dict[str, Any]


class _CosineScheduleRequired(TypedDict):
    # Steps from the highest to the lowest, the warm-up not counted.
    steps: int


# The learning rate falls along half a cosine.
class CosineSchedule(_CosineScheduleRequired, total=False):
    # Where it ends, as a share of the learning rate.
    minimum: float


class _CsvSourceRequired(TypedDict):
    # The file: a path, file:///path, s3://bucket/key or https://host/path. The CLI makes a
    # relative one absolute: it starts at the job file's folder if it exists there, else at the
    # working directory.
    uri: str


# A text table, one sample a row.
class CsvSource(_CsvSourceRequired, total=False):
    # How many classes there are; by default one more than the highest label of the training set.
    classes: int
    # One character between columns.
    delimiter: str
    # Whether the first row holds the columns' names.
    header: Literal["Auto", "Present", "Absent"]
    # The column that holds the class, or the number to predict, by name or by number from 0; by
    # default the column "label", else the last.
    labelColumn: str
    # Instead of labelColumn: several columns to predict.
    labelColumns: list[str]
    # Shape of one sample, such as [1, 8, 8]; by default one row of features.
    shape: list[int]


class _DataCacheRequired(TypedDict):
    # The folder: a path or file:///path, of every worker. In a cluster, of a volume that the
    # workers' template mounts.
    uri: str


# Files on a disk for what was read from afar. Workers and jobs on one machine may share it.
class DataCache(_DataCacheRequired, total=False):
    # So many bytes at most. What was not used since the job began goes first when there is no
    # room; what was used stays, and other images are read from afar.
    maxBytes: int


# How gradients, parameters and state travel between workers and servers. Both ends prove that they
# know the job's key, whatever stands here.
class DataPlane(TypedDict, total=False):
    # Whether nobody on the way can read and change them. What stays in the memory of one machine
    # needs no encryption and has none. Control is always encrypted.
    encryption: Literal["None", "Tls"]
    # What carries it between machines.
    protocol: Literal["Tcp", "Udp"]


# Where samples come from: exactly one kind.
class DataSource(TypedDict, total=False):
    # A text table.
    csv: CsvSource
    # MNIST's format: images and labels, plain or gzip.
    idx: IdxSource
    # Images, with one folder a class. They are read when they are wanted.
    imageFolder: ImageFolderSource
    # Sparse samples as text, one a line: a label, then number:value pairs.
    libsvm: LibsvmSource
    # Made on the spot, for trials and benchmarks.
    synthetic: SyntheticSource
    # Images in tar archives, as WebDataset lays them out. They are read when they are wanted.
    tar: TarSource
    # A text, for workload.languageModel.
    text: TextSource


# The data.
class Dataset(TypedDict, total=False):
    # Write which samples each step used to audit/*.jsonl in the job's folder.
    auditUse: bool
    # How images of the training set are changed each time that they are used, by chance: by the
    # seed, the epoch and the image, so that a job that was killed or scaled sees the same ones.
    augmentation: Augmentation
    # Keep what is read of images in object stores and on web servers on a disk of the worker's.
    cache: DataCache
    # Samples per step over all workers together; it stays this while workers come and go. So it is
    # with parameter servers under bulkSynchronous; under their other consistency models a step is
    # one push, of so many samples unless exchange.parameterServer.samplesPerPush says another. For
    # workload.pytorch, where it is given, instead of its loader's batch_size.
    globalBatchSize: int
    # With onBadRecord: Skip, a job with more than so many bad records fails all the same. It
    # counts for each data set by itself; of images, those that one worker has met.
    maxBadRecords: int
    # Samples that a worker computes at a time; gradients of its share of a batch add up before
    # they travel. By default all at once.
    microBatchSize: int
    # Scale features to mean 0 and variance 1, computed on the training set and kept with the
    # model. Features of libsvm data stay as they are: most of them are 0, and would not be after
    # it.
    normalize: bool
    # What becomes of a record that cannot be read: a line, an image. What cannot be fetched,
    # because a store does not answer, is none.
    onBadRecord: Literal["Fail", "Skip"]
    # What the model learns from; required but for workload.pytorch, which reads its own.
    train: DataSource
    # What it is judged by; without one, only the training loss is reported.
    validation: DataSource


# The largest velocities. Whoever applies them has no momentum.
class DeepGradientCompressionCodec(TypedDict, total=False):
    # The share of the numbers that is sent.
    density: float
    # Of the velocities, which take the place of the optimizer's momentum.
    momentum: float


_DelayCompensatedKeywords = TypedDict(
    "_DelayCompensatedKeywords",
    {
        # Share of the correction.
        "lambda": "float",
    },
    total=False,
)


# Delay-compensated stochastic gradient descent.
class DelayCompensated(_DelayCompensatedKeywords, total=False):
    # Lambda is divided by the root of a running mean of squared gradients.
    adaptive: bool
    # Step size.
    learningRate: float


# A fully connected layer.
class Dense(TypedDict, total=False):
    # Whether it has biases.
    bias: bool
    # How it begins.
    initialization: Literal["Uniform", "Kaiming"]
    # How many numbers it gives; of the last layer it may be left out: one for each class.
    units: int


# Dropout (Srivastava et al. 2014).
class Dropout(TypedDict, total=False):
    # Share of the values that are left out; the others grow to make up for it.
    rate: float


# A network with dropout before its fully connected layers.
class DropoutNetwork(TypedDict, total=False):
    # Share of the values that dropout leaves out in training.
    dropout: float


# Weights are rounded after each update, by draws, and what layers take in and give out in both
# directions, to nearest. The range of what layers see is that of the largest of each tensor. That
# of weights is state: it is doubled if more of them do not fit than maxOverflow says, and halved
# if no more would not fit then.
class DynamicFixedPoint(TypedDict, total=False):
    # Samples between two looks at it.
    adjustEvery: int
    # Of what layers see, with the sign.
    computeBits: int
    # The share of a tensor's weights that may not fit.
    maxOverflow: float
    # Of weights, with the sign.
    updateBits: int


# Nobody runs far ahead of the slowest, and updates are sent before they must be.
class EagerStaleSynchronous(TypedDict, total=False):
    # What a worker may send early.
    bytesPerSecond: float
    # What is sent first.
    priority: Literal["Fifo", "Random", "RelativeMagnitude"]
    # Clocks.
    staleness: int


class _EmbeddingRequired(TypedDict):
    # Length of a vector.
    width: int


# A table of vectors.
class Embedding(_EmbeddingRequired, total=False):
    # Numbers from 0 that have a vector; of a language model it may be left out: one for each
    # symbol.
    rows: int


_EmulatedLinkKeywords = TypedDict(
    "_EmulatedLinkKeywords",
    {
        # One of them, as worker-0; not given: every pod.
        "from": "str",
    },
    total=False,
)


class _EmulatedLinkRequired(TypedDict):
    # The other.
    to: str


# What is between two pods, both ways.
class EmulatedLink(_EmulatedLinkKeywords, _EmulatedLinkRequired, total=False):
    # Bits a second, each way.
    bandwidth: str
    # In place of the network's delay.
    delay: str


# An emulated network, for jobs all of whose pods run on one machine. Members share no memory then.
# Control messages, data sets and checkpoints travel as ever.
class EmulatedNetwork(TypedDict, total=False):
    # Bits that a network card sends each second, and as many that it receives, as a quantity from
    # 1M to 1T, such as 1G; not given: as fast as the machine can.
    bandwidth: str
    # From when the last byte of a message has left a card until it is there.
    delay: str
    # Links that are slower than the others.
    links: list[EmulatedLink]
    # So many workers whose numbers follow one another share a card, and so many parameter servers;
    # between these nothing is emulated. Only without containers, where pods see one folder.
    podsPerHost: int


# The largest velocities, more of the tensors whose magnitudes spread wider. Whoever applies them
# has no momentum.
class EntropyTopKCodec(TypedDict, total=False):
    # The share of all numbers that is sent.
    density: float
    # Of the velocities, which take the place of the optimizer's momentum.
    momentum: float


# events.k8s.io/v1 Events
class EventList(TypedDict):
    items: list[dict[str, Any]]


# Over what updates travel.
class Exchange(TypedDict, total=False):
    # Every worker holds the model; gradients are summed among all.
    allReduce: AllReduce
    # Nothing travels: one worker trains alone.
    none: NoExchange
    # Workers push updates to servers, which hold the model, and pull parameters from them.
    parameterServer: ParameterServer


# How updates travel.
class ExchangePath(TypedDict, total=False):
    # By which algorithm, or by which for which size.
    algorithm: str
    # As in spec.exchange: allReduce, parameterServer.
    exchange: str
    # Why by these.
    reason: str
    # Shared memory, TCP or UDP (with TLS, where spec.dataPlane says so), or both.
    transport: str


# Pacing and faults, for tests and studies only.
class Experiment(TypedDict, total=False):
    # A slower network between workers, and between them and parameter servers, than the one they
    # have.
    network: EmulatedNetwork
    # Every step takes at least this much longer.
    stepDelay: str


# Where the metrics of a job are told to programs of others, beside its status, its history and
# Prometheus. What cannot be told is lost and never holds training up; condition Degraded, reason
# ExportFailing, says so.
class Export(TypedDict, total=False):
    # A run on a tracking server of MLflow.
    mlflow: Mlflow
    # A collector of OpenTelemetry, or whoever else takes OTLP.
    otlp: Otlp
    # Event files, for TensorBoard.
    tensorboard: TensorBoard


class _FieldBoundRequired(TypedDict):
    # Its path below spec, such as stop.epochs or replicaSpecs.worker.maxReplicas. A job that does
    # not give it, and has no default of it, is refused: where nothing is said nothing is bounded.
    # A part of the spec that the job does not have (exchange.parameterServer of an allreduce) is
    # not asked.
    field: str


# What one field may be; at least one of minimum, maximum and allowed.
class FieldBound(_FieldBoundRequired, total=False):
    # All that it may be, as text: names of a field that chooses, members of one that holds one of
    # several (exchange: allReduce).
    allowed: list[str]
    # The most it may be; of a duration in seconds.
    maximum: float
    # The least it may be; of a duration in seconds.
    minimum: float


# After each update weights are multiples of 2^-fractionBits from -2^(integerBits-1) on, and below
# 2^(integerBits-1). What an optimizer keeps has 32 bits, and so has what is computed.
class FixedPoint(TypedDict, total=False):
    # Bits behind it.
    fractionBits: int
    # Bits before the point, with the sign.
    integerBits: int
    # To which of its neighbours a number goes.
    rounding: Literal["Stochastic", "Nearest"]


# Every worker pushes by itself.
FlatTopology = dict[str, Any]


# Half precision.
Float16Codec = dict[str, Any]


# FTRL-Proximal.
class Ftrl(TypedDict, total=False):
    # The paper's beta.
    beta: float
    # L1 penalty: makes exact zeros.
    l1: float
    # L2 penalty.
    l2: float
    # Step size; the paper's alpha.
    learningRate: float


# Every gradient travels.
GradientUpdate = dict[str, Any]


class _GroupNormRequired(TypedDict):
    # How many groups; they divide the channels.
    groups: int


# Group normalization: by means and variances over groups of a sample's channels.
class GroupNorm(_GroupNormRequired, total=False):
    # Added to the variance.
    epsilon: float


# A worker's threads share its weights, and nobody locks them: each thread takes a step of plain
# sgd for each of its samples, and what the weights have changed by is exchanged and added.
class Hogwild(TypedDict, total=False):
    # Threads in each worker; more than it has CPUs gain nothing.
    threads: int


# One push leaves each node.
HostReduceTopology = dict[str, Any]


# 32 bits.
IdentityCodec = dict[str, Any]


class _IdxSourceRequired(TypedDict):
    # The file of images, found as csv.uri is: magic 0x00000803, count, rows, columns, bytes.
    imagesUri: str
    # The file of labels: magic 0x00000801, count, bytes.
    labelsUri: str


# MNIST's format.
class IdxSource(_IdxSourceRequired, total=False):
    # How many classes there are; by default one more than the highest label of the training set.
    classes: int
    # How many samples to use from there; by default all.
    count: int
    # The first sample to use, from 0.
    offset: int


class _ImageFolderSourceRequired(TypedDict):
    # The folder, found as csv.uri is: a path, file:///path or s3://bucket/prefix. Each folder in
    # it is a class, numbered from 0 in the order of their names; the validation set's are those of
    # the training set with the same names. JPEG and PNG files in it, also deeper in, are its
    # samples; what begins with a dot is passed over.
    uri: str


# A folder of images with one folder a class, as ImageNet's are laid out.
class ImageFolderSource(_ImageFolderSourceRequired, total=False):
    # Memory of a worker for images that are decoded, so that they need not be once more in the
    # next epoch; what does not fit is read again. With augmentation.randomCrop there is nothing to
    # keep.
    cacheBytes: int
    # Shape of every sample, [channels, height, width], with 3 channels (red, green, blue) or 1
    # (grey). Of an image the largest part around the middle with this ratio of sides is used, and
    # made as large.
    shape: list[int]
    # Threads of a worker that read and decode the images of the next step while this one is
    # computed.
    threads: int


# Something failed and was dealt with.
class Incident(TypedDict, total=False):
    # From the last sign of life to its being noticed.
    detectionSeconds: float
    # The process's exit code, if it ended with one.
    exitCode: int
    # The last lines of its log.
    logTail: str
    # What was done, as a sentence.
    message: str
    # The pod that it happened to.
    pod: str
    # That pod's UID: names are used again.
    podUid: str
    # What kind: one CamelCase word, such as WorkerLost, CoordinatorLost, StepsAtRisk.
    reason: str
    # From there to the next settled step.
    recoverySeconds: float
    # Steps that had to be computed again, as far as those know who live.
    repeatedSteps: int
    # Where nobody that lives holds the newest state (StepsLost): the step from which training went
    # on.
    resumedStep: int
    # The signal that ended it, if one did.
    signal: int
    # When it was noticed.
    time: str


class IncidentList(TypedDict):
    items: list[Incident]


# Where training begins.
class InitialModel(TypedDict):
    # A safetensors file, found as dataset.train.csv.uri is, with a tensor of 32-bit floats for
    # each of the model's, of the same name and shape: such as the model of another job, or a state
    # dictionary of PyTorch. What else it holds is left out.
    uri: str


# A layer within a residual block: as Layer, of the kinds that can give what they are given.
class InnerLayer(TypedDict, total=False):
    # As in Layer.
    attention: Attention
    # As in Layer.
    averagePool: Pooling
    # As in Layer.
    batchNorm: BatchNorm
    # As in Layer.
    convolution: Convolution
    # As in Layer.
    dense: Dense
    # As in Layer.
    dropout: Dropout
    # As in Layer.
    gelu: PlainLayer
    # As in Layer.
    groupNorm: GroupNorm
    # As in Layer.
    layerNorm: LayerNorm
    # As in Layer.
    lstm: Lstm
    # As in Layer.
    maxPool: Pooling
    # As in Layer; what the block's tensors' names begin with stands before it.
    name: str
    # As in Layer.
    relu: PlainLayer
    # As in Layer.
    sigmoid: PlainLayer
    # As in Layer.
    tanh: PlainLayer


# A byte a number.
class Int8Codec(TypedDict, total=False):
    # Workers agree on scales, and what they send is added up as it is: nothing is lost of the sum.
    sharedScale: bool


_JobListKeywords = TypedDict(
    "_JobListKeywords",
    {
        # Of the next page; absent on the last
        "continue": "str",
    },
    total=False,
)


class _JobListRequired(TypedDict):
    items: list[JobSummary]


class JobList(_JobListKeywords, _JobListRequired, total=False):
    # Newest state that is in the list
    resourceVersion: str


# What is to change; null removes (RFC 7386)
JobPatch = dict[str, Any]


class _JobSummaryRequired(TypedDict):
    # When, as RFC 3339
    created: str
    name: str
    namespace: str
    # Of the state that this sums up
    resourceVersion: str
    # Pending, Running, Restarting, Suspended, Succeeded or Failed
    state: str
    uid: str


class JobSummary(_JobSummaryRequired, total=False):
    # By whom, where that is known
    createdBy: str
    # When it was seen to be gone, as RFC 3339; of past jobs alone
    deleted: str
    deleting: bool
    # Passes that are done
    epoch: int
    labels: dict[str, str]
    # Of the last settled step
    loss: float
    # Of the condition that says the most
    reason: str
    # What it computed in which time
    run: dict[str, Any]
    # Of all workers
    samplesPerSecond: float
    # Steps that are settled
    step: int
    # Such as "epoch 3/20"
    summary: str
    # What it has used, for sums
    use: dict[str, Any]
    # That train now
    workers: int


class _LanguageModelRequired(TypedDict):
    # The network: a transformer, or layers that begin with an embedding and give a number for each
    # symbol at each place of [contextLength]. What sees later places, as attention that is not
    # causal does, is refused.
    model: Model


# Prediction of the next symbol of a text: at each place of a sample, by that symbol and those
# before it. For text data.
class LanguageModel(_LanguageModelRequired, total=False):
    # Symbols of a sample: the network sees at most so many at once.
    contextLength: int
    # What its tensors begin with, instead of numbers drawn from the seed.
    initialModel: InitialModel
    # What a symbol is.
    symbols: Literal["Characters", "Bytes"]


# Stochastic gradient descent with momentum, where the step of each matrix or kernel is multiplied
# by trust * |weights| / (|gradient| + weightDecay * |weights|). Biases and scales of
# normalizations take plain steps, without decay.
class Lars(TypedDict, total=False):
    # Step size.
    learningRate: float
    # Share of the last update that is kept.
    momentum: float
    # As above.
    trust: float
    # L2 penalty.
    weightDecay: float


# A layer: exactly one kind.
class Layer(TypedDict, total=False):
    # Means of as many windows of an image as make it of a size.
    adaptiveAveragePool: AdaptivePooling
    # Multi-head self-attention (Vaswani et al. 2017) over a sequence, [length, width].
    attention: Attention
    # The mean of each window of an image.
    averagePool: Pooling
    # Batch normalization (Ioffe and Szegedy 2015) of the channels, the first side.
    batchNorm: BatchNorm
    # Over images, [channels, height, width].
    convolution: Convolution
    # Fully connected, over the last side of its input.
    dense: Dense
    # Leaves values out in training; which, depends on the seed, the sample and the epoch alone.
    dropout: Dropout
    # A vector for each whole number of a sequence; the first layer, with dataset.normalize: false.
    embedding: Embedding
    # All values in one side.
    flatten: PlainLayer
    # Gaussian error linear unit.
    gelu: PlainLayer
    # The mean of each channel of an image, or over a sequence: only channels remain.
    globalAveragePool: PlainLayer
    # Group normalization (Wu and He 2018) of the channels, the first side.
    groupNorm: GroupNorm
    # Layer normalization (Ba et al. 2016) over the last side.
    layerNorm: LayerNorm
    # Long short-term memory (Hochreiter and Schmidhuber 1997) over a sequence, [length, width].
    lstm: Lstm
    # The largest value of each window of an image.
    maxPool: Pooling
    # What the names of its tensors begin with; by default layers.N, with N from 0.
    name: str
    # Adds a vector of its own to each place of a sequence, [length, width].
    positions: PlainLayer
    # max(x, 0).
    relu: PlainLayer
    # Its layers' output plus its input.
    residual: Residual
    # 1 / (1 + exp(-x)).
    sigmoid: PlainLayer
    # Hyperbolic tangent.
    tanh: PlainLayer
    # A block of a transformer over a sequence, [length, width]: attention, then two dense layers
    # with gelu between, each after a layerNorm and added to its input.
    transformerBlock: TransformerBlock


# Layer normalization.
class LayerNorm(TypedDict, total=False):
    # Added to the variance.
    epsilon: float


# LeNet-5.
LeNet5 = dict[str, Any]


# The course of the learning rate: a warm-up, then one of the kinds.
class LearningRateSchedule(TypedDict, total=False):
    # It stays.
    constant: ConstantSchedule
    # It falls to a minimum along half a cosine.
    cosine: CosineSchedule
    # It is multiplied by a factor every so many steps.
    step: StepSchedule
    # It grows from 0 in proportion to the step for this many steps first.
    warmupSteps: int


# Sparse samples as text, as LIBSVM and liblinear read them.
class LibsvmSource(TypedDict):
    # The file, found as csv.uri is. Of a classification, labels above 0 are the positive class.
    uri: str


# One fully connected layer.
Linear = dict[str, Any]


# Linear regression: weights and an intercept that make the mean squared error of a numeric label
# small. For csv and libsvm data, whose label is then any number.
class LinearRegression(TypedDict, total=False):
    # Feature numbers of libsvm data are hashed to so many weights; by default 1048576. Columns of
    # csv data have a weight each.
    hashedFeatures: int
    # L2 penalty of the weights.
    l2: float


# Workers work on a copy of their own between two exchanges. A unit of work is one batch, or of a
# job with parameter servers exchange.parameterServer.samplesPerPush.
class LocalSgd(TypedDict, total=False):
    # Parameters are taken from the exchange before every so many units of work.
    fetchEvery: int
    # What the units of work since then sum up to is exchanged after every so many.
    pushEvery: int
    # So many units of work are done by one worker alone before the others begin.
    warmStart: int


# Logarithmic numbers of 8 bits.
LogarithmicCodec = dict[str, Any]


# What layers take in and give out, in both directions, is a sign and a logarithm in steps of an
# eighth of a factor of two, down to 2^-15 of the largest of its tensor, and 0. Weights and their
# updates have 32 bits.
LogarithmicNumbers = dict[str, Any]


class _LstmRequired(TypedDict):
    # Width of what it remembers and gives.
    units: int


# Long short-term memory.
class Lstm(_LstmRequired, total=False):
    # Whether it gives its output at each place of the sequence, or at the last one only.
    sequence: bool


# The smallest weights; what is 0 once stays so.
class MagnitudePruning(TypedDict, total=False):
    # The step after which the first are.
    fromStep: int
    # Of each tensor's weights, at last.
    share: float
    # The step after which the last are.
    toStep: int


class Metrics(TypedDict):
    metrics: dict[str, list[list[float]]]


# Layers take in and give out numbers of 16 bits, in both directions, and add up in 32; weights and
# their updates have 32, and so has what validations compute. Small gradients are kept by a scaled
# loss; where a sum of gradients is infinite, all workers skip that step.
class MixedPrecision(TypedDict, total=False):
    # The format.
    compute: Literal["Float16", "Bfloat16"]
    # Doubled after so many steps in a row; 0: never.
    growEvery: int
    # What the summed loss is multiplied by at first; each skipped step halves it. At 1 none is
    # skipped.
    lossScale: float


class _MlflowRequired(TypedDict):
    # The tracking server, such as https://mlflow.example:5000, with the path before /api if it has
    # one.
    uri: str


# A run on a tracking server of MLflow, with the same metrics as event files of TensorBoard get.
# Who we are to the server stands in the coordinator's environment, as MLflow's own clients read
# it: MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD; let the
# coordinator's template take it from a Secret.
class Mlflow(_MlflowRequired, total=False):
    # The experiment by its name; it is made if there is none.
    experiment: str


# A multilayer perceptron.
class Mlp(TypedDict, total=False):
    # Width of each hidden layer, from input to output; none makes it logistic regression.
    hidden: list[int]


# A network: exactly one kind. Named ones stand for layers; their tensors are named as PyTorch's
# torchvision names them.
class Model(TypedDict, total=False):
    # AlexNet (Krizhevsky 2014); images of at least 63 by 63.
    alexnet: DropoutNetwork
    # For workload.autoencoder: fully connected layers down to the narrowest, and back.
    autoencoder: AutoencoderNetwork
    # Your own network: layers from input to output. The shape of each one's input follows from the
    # data and from the layers before it. The last layer gives a number for each class; where it is
    # dense, it may leave units out.
    layers: list[Layer]
    # LeNet-5 (LeCun et al. 1998) with rectified linear units and max pooling; images of at least
    # 20 by 20.
    lenet5: LeNet5
    # One fully connected layer: logistic regression.
    linear: Linear
    # A multilayer perceptron with rectified linear units.
    mlp: Mlp
    # A residual network (He et al. 2016) with 18 layers and batch normalization; images of at
    # least 32 by 32.
    resnet18: ResNet
    # The same with 50 layers.
    resnet50: ResNet
    # A transformer that sees no later places, for workload.languageModel: embedding, positions,
    # blocks.
    transformer: Transformer
    # VGG (Simonyan and Zisserman 2015) with 11 layers, without batch normalization; images of at
    # least 32 by 32.
    vgg11: DropoutNetwork
    # The same with 16 layers.
    vgg16: DropoutNetwork


# A model on disk.
class ModelFile(TypedDict, total=False):
    # Its digest, hexadecimal: equal parameters give equal digests.
    sha256: str
    # The safetensors file.
    uri: str


# Nothing travels.
NoExchange = dict[str, Any]


# Numbers of fewer than 32 bits, for networks whose workers sum up gradients.
class Numerics(TypedDict, total=False):
    # Each tensor's point where its numbers fit (Courbariaux et al. 2015).
    dynamicFixedPoint: DynamicFixedPoint
    # Weights in fixed point (Gupta et al. 2015).
    fixedPoint: FixedPoint
    # Layers in logarithmic numbers of 8 bits.
    logarithmic: LogarithmicNumbers
    # Layers in 16 bits (Micikevicius et al. 2018).
    mixedPrecision: MixedPrecision
    # Weights that stay 0.
    sparsity: Sparsity


class _ObjectMetaRequired(TypedDict):
    # The job's name, at most 40 characters, so that its pods' names stay legal.
    name: str


# The part of Kubernetes' object metadata that a job file may hold.
class ObjectMeta(_ObjectMetaRequired, total=False):
    # Annotations, free text.
    annotations: dict[str, str]
    # Labels, for selecting jobs.
    labels: dict[str, str]
    # The namespace; "default" if not given.
    namespace: str


class _OnOutOfMemoryRequired(TypedDict):
    # The most that it is ever given, such as 64Gi; a kill at this size counts as any other
    # failure.
    maximum: str


# How much more memory a pod of the job gets after it was killed for want of it; each role grows
# from its own size.
class OnOutOfMemory(_OnOutOfMemoryRequired, total=False):
    # What the memory request and limit of its container "trainer" are multiplied by, each time.
    factor: float


# One bit a number; to be used with errorFeedback.
OneBitCodec = dict[str, Any]


OpenApi = dict[str, Any]


# How parameters follow gradients: exactly one rule, and the course of its learning rate.
class Optimizer(TypedDict, total=False):
    # Adagrad for gradients that come late (McMahan and Streeter 2014).
    adaRevision: Adagrad
    # Adagrad (Duchi, Hazan and Singer 2011).
    adagrad: Adagrad
    # Adam (Kingma and Ba 2015); weight decay, if any, is added to the gradient.
    adam: Adam
    # AdamW (Loshchilov and Hutter 2019): weight decay apart from the gradient.
    adamW: Adam
    # A gradient whose norm, over all tensors, is larger is made this long; by default none is.
    clipNorm: float
    # Stochastic gradient descent that makes up for late gradients (Zheng et al. 2017).
    delayCompensated: DelayCompensated
    # FTRL-Proximal for sparse models (McMahan et al. 2013).
    ftrl: Ftrl
    # LARS (You, Gitman and Ginsburg 2017), for large batches.
    lars: Lars
    # Proximal gradient descent (Li et al. 2014): a plain step, then the one of an L1 penalty.
    proximalGradient: ProximalGradient
    # RMSProp (Tieleman and Hinton 2012): steps divided by the root of a running mean of squared
    # gradients.
    rmsProp: RmsProp
    # How the learning rate changes over the steps.
    schedule: LearningRateSchedule
    # Stochastic gradient descent.
    sgd: Sgd


# OpenTelemetry's protocol over HTTP, as JSON: the same metrics as gauges, and a trace with a span
# for each view of the members, whose incidents are events. The trace is that of the header
# traceparent of the request that submitted the job, or of its annotation starling.dev/traceparent,
# else one with the job's UID as its id. The coordinator's environment is read as OpenTelemetry's
# own exporters read it: OTEL_EXPORTER_OTLP_HEADERS, OTEL_SERVICE_NAME (otherwise starling) and
# OTEL_RESOURCE_ATTRIBUTES.
class Otlp(TypedDict):
    # The collector, such as http://collector.example:4318; /v1/metrics and /v1/traces are added.
    uri: str


# Workers push updates to servers, which hold the model, and pull parameters from them.
class ParameterServer(TypedDict, total=False):
    # Who may read what, and what is applied when.
    consistency: Consistency
    # How many servers hold each part of the model; a job goes on without loss while one of them
    # lives.
    replication: int
    # Samples in one unit of work that is given to a worker. With bulkSynchronous a batch is cut
    # into units of this size, which must divide dataset.globalBatchSize, and a worker pushes those
    # that it has of one batch together; by default into 16 (or one a sample), so that up to 16
    # workers share it, and more stand by. With the other models a unit is one push, and an update:
    # by default dataset.globalBatchSize.
    samplesPerPush: int
    # The parameters are cut into at most so many parts, which are spread over the servers; fewer
    # where a part would be smaller than 4096 numbers.
    shards: int
    # The tensors of the model that lie on the servers, such as an embedding, by their names; a
    # name that ends in * stands for all that begin so. The workers hold the others, and sum up
    # their gradients among themselves as exchange.allReduce does. By default all tensors lie on
    # the servers.
    tensors: list[str]
    # Over whom pushes reach the servers.
    topology: Topology


# The parameter servers.
class ParameterServerSpec(TypedDict, total=False):
    # Scaling stops here; by default there is no other limit than 1024.
    maxReplicas: int
    # Training starts, and goes on, with this many; by default 1.
    minReplicas: int
    # How many are wanted.
    replicas: int
    # What an exit means for the job.
    restartPolicy: Literal["OnFailure", "ExitCode", "Never"]
    # A PodTemplateSpec, merged over the defaults; its container is called "trainer".
    template: dict[str, Any]


# A layer without choices.
PlainLayer = dict[str, Any]


class PlanDurationSeconds(TypedDict):
    # Half of such jobs end within it
    p50: float
    # Nine of ten do
    p90: float


class _PlanDurationRequired(TypedDict):
    # What this is known from, or why it is unknown
    basis: str


class PlanDuration(_PlanDurationRequired, total=False):
    seconds: PlanDurationSeconds
    # That it trains for, where that is known
    steps: float


class PlanLeft(TypedDict):
    # What it has left
    amounts: dict[str, float]
    # Such as "quota team", "nodes", "this machine"
    source: str


class PlanPods(TypedDict):
    # What one pod asks for
    each: dict[str, float]
    # Without so many it does not train
    minReplicas: int
    # Wanted
    replicas: int
    # coordinator, worker or parameterServer
    role: str


class _PlanRequired(TypedDict):
    duration: PlanDuration
    # Whether there is room: as it is, with as few as it trains with, not at all
    fits: Literal["Yes", "WithFewer", "No", "Unknown"]
    left: list[PlanLeft]
    pods: list[PlanPods]
    # Of all pods; pods and jobs are counted too
    total: dict[str, float]


class Plan(_PlanRequired, total=False):
    # What could not be seen, and why
    unknown: str
    # What it is too large for
    why: str


# What the pods of a job may be.
class PodBounds(TypedDict, total=False):
    # Images that containers may have; one that ends in * allows all that begin so. The operator's
    # own is always allowed.
    images: list[str]
    # The most of each resource (cpu, memory, nvidia.com/gpu) that one container may ask for and be
    # limited to. Of cpu, memory and ephemeral-storage each container must have a limit, for
    # without one it has no bound.
    maxResources: dict[str, str]


# Pods as Kubernetes writes them
class PodList(TypedDict):
    items: list[dict[str, Any]]


class _PoolingRequired(TypedDict):
    # Side of the window.
    kernel: int


# Pooling over square windows.
class Pooling(_PoolingRequired, total=False):
    # Around the image; at most half of the window.
    padding: int
    # Step between two windows; by default the window's side.
    stride: int


class ProblemErrors(TypedDict):
    # What is wrong with it, and what to do
    detail: str
    # The field, as the CLI names it
    path: str
    # The same as the fragment of a JSON pointer
    pointer: str


class _ProblemRequired(TypedDict):
    # For programs
    code: str
    # What was wrong this time
    detail: str
    # What to do
    remedy: str
    # Stands in the X-Request-Id header too
    requestId: str
    # HTTP's status
    status: int
    # What the code means
    title: str
    # Names the code as a URI
    type: str


class Problem(_ProblemRequired, total=False):
    errors: list[ProblemErrors]


# How far training is.
class Progress(TypedDict, total=False):
    # Whole passes over the training set that are done.
    epoch: int
    # At that speed, until the job stops by epochs or steps.
    estimatedRemaining: str
    # How updates travel now, one for each exchange that the job has.
    exchanges: list[ExchangePath]
    # Loss of the last settled step.
    loss: float
    # By name, such as validation/accuracy.
    metrics: dict[str, float]
    # Samples that those steps have used.
    samples: int
    # Lately, by all workers together.
    samplesPerSecond: float
    # Steps that are settled.
    step: int
    # Workers that the others wait for at each step, the slowest first.
    stragglers: list[Straggler]
    # For the printer column, such as "epoch 3/20" or "step 120/1000".
    summary: str
    # Passes over the training set in all, where that is known.
    totalEpochs: int
    # Steps in all, where that is known.
    totalSteps: int
    # Workers that train now.
    workers: int


# A convolution of 1 by 1 without biases.
class Projection(TypedDict, total=False):
    # Whether batch normalization follows.
    batchNorm: bool
    # How it begins.
    initialization: Literal["Uniform", "Kaiming"]
    # Its stride: as the layers shrink the image.
    stride: int


# Proximal gradient descent: each weight takes a plain step, then moves towards 0 by learningRate *
# l1, and stays there if that is far enough.
class ProximalGradient(TypedDict, total=False):
    # L1 penalty: makes exact zeros. Of a sparse model it is taken where a weight is used: each
    # update moves the weights that its samples use, and no others.
    l1: float
    # Step size.
    learningRate: float


class _PyTorchRequired(TypedDict):
    # The program: a path, found as dataset.train.csv.uri is. In a cluster it is a path in the
    # container, whose image or volumes hold it.
    script: str


# A PyTorch program of your own, which hands its loader, model and optimizer to starling.torch.
# Every worker runs it; gradients are summed among them, and who comes later is given the state
# that the others have. In a cluster the container "trainer" of spec.replicaSpecs.worker.template
# names the image: it needs Python and PyTorch, and gets the package "starling" from us.
class PyTorch(_PyTorchRequired, total=False):
    # What it is given on its command line.
    args: list[str]
    # The interpreter, a name in PATH or a path: Python 3.10 or later with PyTorch 1.13 or later.
    python: str


# A part of an image, its sides in a ratio between 3 : 4 and 4 : 3 times that of shape, as
# torchvision's RandomResizedCrop.
class RandomCrop(TypedDict, total=False):
    # The least share of the image's area; the most is all of it.
    minimumArea: float


class _RegressionRequired(TypedDict):
    # The network, as of a classification; its last layer gives a number for each column.
    model: Model


# Regression by a neural network, for csv data: what is predicted are the columns that the data set
# calls labels, as they stand there.
class Regression(_RegressionRequired, total=False):
    # What its tensors begin with, instead of numbers drawn from the seed.
    initialModel: InitialModel
    # What training lowers: of a sample, its mean over the columns.
    loss: Literal["SquaredError", "Huber", "AbsoluteError"]


# The job's roles.
class ReplicaSpecs(TypedDict, total=False):
    # The one small process that keeps the members together.
    coordinator: CoordinatorSpec
    # The processes that hold the model, where exchange is parameterServer.
    parameterServer: ParameterServerSpec
    # The processes that compute.
    worker: WorkerSpec


# Pods of one role.
class ReplicaStatus(TypedDict, total=False):
    # Pods that exist and have not ended.
    active: int
    # Pods that failed.
    failed: int
    # The memory that each container "trainer" is given after kills for want of it; not given: what
    # the template says.
    memory: str
    # Of those, the ones that are ready.
    ready: int
    # Pods that ended well.
    succeeded: int


# What came of a request for a checkpoint.
class RequestedCheckpoint(TypedDict, total=False):
    # What was written for it.
    checkpoint: CheckpointStatus
    # Which request: what the annotation starling.dev/checkpoint-requested-at said then.
    request: str


# A residual network.
ResNet = dict[str, Any]


# A residual block: what its layers give is added to its input, which must have the same shape or
# be projected to it.
class Residual(TypedDict, total=False):
    # From input to output.
    layers: list[InnerLayer]
    # Makes the input of an image fit: a convolution of 1 by 1 to as many channels.
    projection: Projection


# The end of the story.
class Result(TypedDict, total=False):
    # Whole passes over the training set.
    epochs: int
    # By name; those of the validation data begin with validation/.
    metrics: dict[str, float]
    # The trained model.
    model: ModelFile
    # Samples used.
    samples: int
    # Seconds the job was active, suspension not counted.
    seconds: float
    # Steps in all.
    steps: int
    # Not given where the job had no target.
    targetReached: bool


# RMSProp, with PyTorch's meaning of each term.
class RmsProp(TypedDict, total=False):
    # Decay of the mean of squared gradients.
    decay: float
    # Added to the denominator.
    epsilon: float
    # Step size.
    learningRate: float
    # Share of the last update that is kept.
    momentum: float
    # L2 penalty.
    weightDecay: float


# How the job's life is managed. Names and meanings follow Kubeflow's RunPolicy and Kubernetes'
# Job.
class RunPolicy(TypedDict, total=False):
    # Fail the job when it has been active for this long, time in suspension not counted.
    activeDeadlineSeconds: int
    # Fail the job after this many pod failures without a step of progress between them.
    backoffLimit: int
    # Which pods are deleted when the job ends.
    cleanPodPolicy: Literal["Running", "All", "None"]
    # Who reconciles the job; not given, or starling.dev/controller: this controller. Any other
    # value, such as kueue.x-k8s.io/multikueue, makes it leave the job alone. It never changes.
    managedBy: str
    # How its pods are queued and placed together.
    schedulingPolicy: SchedulingPolicy
    # When a job that brings its own container has succeeded; by default AllWorkers. Other jobs end
    # when training does.
    successPolicy: Literal["AllWorkers", "FirstWorker"]
    # Save a checkpoint, release all pods, and wait.
    suspend: bool
    # Delete the job this long after its end; not given: never.
    ttlSecondsAfterFinished: int


class _ScaleRolesRequired(TypedDict):
    # Wanted
    replicas: int


class ScaleRoles(_ScaleRolesRequired, total=False):
    # Pods that are there
    active: int
    maxReplicas: int
    minReplicas: int


class Scale(TypedDict):
    roles: dict[str, ScaleRoles]


class _ScaleRequestRequired(TypedDict):
    replicas: int


class ScaleRequest(_ScaleRequestRequired, total=False):
    role: Literal["worker", "parameterServer"]


# How a job's pods are queued and placed together; what nobody in the cluster acts on is told by
# condition Degraded, reason SchedulingIgnored. Names and meanings follow Kubeflow's
# SchedulingPolicy.
class SchedulingPolicy(TypedDict, total=False):
    # So many workers are placed together or not at all; by default minReplicas of them.
    minAvailable: int
    # The PriorityClass of the job's pods, unless their templates name one, and of their gang if
    # there is a gang scheduler.
    priorityClass: str
    # The queue of the installed gang scheduler, where it has queues (Volcano); the label
    # kueue.x-k8s.io/queue-name names Kueue's.
    queue: str
    # A gang that is not placed whole for so long gives back what it holds and waits anew, where
    # the gang scheduler can do so (coscheduling).
    scheduleTimeoutSeconds: int


# Stochastic gradient descent, with PyTorch's meaning of each term.
class Sgd(TypedDict, total=False):
    # Step size.
    learningRate: float
    # Share of the last update that is kept.
    momentum: float
    # Nesterov's momentum; it needs momentum above 0.
    nesterov: bool
    # L2 penalty.
    weightDecay: float


# One update of every workers / n pushes.
class SoftSync(TypedDict, total=False):
    # 1: as many pushes as there are workers make one update; the number of workers: every push is
    # one.
    n: int
    # The learning rate is divided by the mean staleness of the update.
    stalenessAware: bool


# The most positive or the most negative numbers; to be used with errorFeedback.
class SparseBinaryCodec(TypedDict, total=False):
    # The share of the numbers that is sent.
    density: float


# Logistic regression over sparse features: a worker pulls and pushes only the weights that its
# samples touch.
class SparseLogisticRegression(TypedDict, total=False):
    # Feature numbers are hashed to so many weights.
    hashedFeatures: int
    # L2 penalty of the weights.
    l2: float


# Which weights of matrices and kernels become 0.
class Sparsity(TypedDict, total=False):
    # The smallest, more and more of them (Zhu and Gupta 2017).
    magnitude: MagnitudePruning
    # The two smaller of each four in a row.
    twoOfFour: TwoOfFour


# Nobody runs far ahead of the slowest.
class StaleSynchronous(TypedDict, total=False):
    # Clocks.
    staleness: int


# A coordinator process that waits.
class StandbyGrant(TypedDict, total=False):
    # The random id of the process.
    bootId: str
    # The number of the coordinator that it takes over from, and from no other.
    follows: int
    # The number that it leads under, granted ahead of time.
    incarnation: int
    # The pod that it runs in.
    podUid: str


class _StepScheduleRequired(TypedDict):
    # Steps between two falls.
    every: int


# The learning rate falls in stairs.
class StepSchedule(_StepScheduleRequired, total=False):
    # What it is multiplied by.
    factor: float


# When training ends.
class Stop(TypedDict, total=False):
    # After this many passes over the training set; 10 where neither epochs nor steps is given.
    epochs: int
    # After this many steps.
    steps: int
    # When a metric is good enough. An unmet target still succeeds, with result.targetReached:
    # false.
    target: Target


# A worker that works longer on its own part of each step than the others.
class Straggler(TypedDict, total=False):
    # The node that the pod is on.
    node: str
    # The worker's pod.
    pod: str
    # How many times as long as the quarter of the workers that is fastest.
    ratio: float


# Gaussian clusters, one a class, made from the job's seed.
class SyntheticSource(TypedDict, total=False):
    # How many classes.
    classes: int
    # How many samples.
    samples: int
    # Shape of one sample.
    shape: list[int]


class _TarSourceRequired(TypedDict):
    # The archives, found as csv.uri is, not compressed as a whole: one, or several with their
    # numbers in braces, as in shards/train-{000..127}.tar.
    uri: str


# Images in tar archives: members with one name up to its first dot, one behind another, are a
# sample; 17.jpg (jpeg, png) is its image, 17.cls holds the number of its class, others are passed
# over.
class TarSource(_TarSourceRequired, total=False):
    # As imageFolder.cacheBytes.
    cacheBytes: int
    # As csv.classes.
    classes: int
    # As imageFolder.shape.
    shape: list[int]
    # As imageFolder.threads.
    threads: int


class _TargetRequired(TypedDict):
    # The metric's name: one of those that the workload has, such as validation/accuracy of a
    # classification, and validation/loss of all.
    metric: str


# A metric that is good enough.
class Target(_TargetRequired, total=False):
    # Reached when the metric is at least this.
    atLeast: float
    # Reached when the metric is at most this.
    atMost: float


# What no job that names the template may go beyond, when it is made or later.
class TemplateBounds(TypedDict, total=False):
    # Of single fields of the job's spec.
    fields: list[FieldBound]
    # Of its pods.
    pods: PodBounds


class TemplateList(TypedDict):
    items: list[TrainingTemplate]


class _TemplateRefRequired(TypedDict):
    # Its name.
    name: str


# Which template.
class TemplateRef(_TemplateRefRequired, total=False):
    # Of the job's namespace, or of the whole cluster; on one machine both lie in the folder
    # templates of the home.
    kind: Literal["TrainingTemplate", "ClusterTrainingTemplate"]


# Event files of TensorBoard: loss, samplesPerSecond and the other metrics of the progress, once a
# second at most, and those of the result. The coordinator writes them.
class TensorBoard(TypedDict):
    # A folder, found as dataset.train.csv.uri is; each job makes one of its own in it, its name
    # and the first eight letters of its UID, which TensorBoard shows as a run. In a cluster it is
    # a path in the coordinator's pod: a volume that its template mounts.
    uri: str


# Ternary numbers, right on average.
class TernGradCodec(TypedDict, total=False):
    # Numbers are clipped at so many standard deviations of their tensor; 0 clips nothing.
    clipSigma: float
    # Workers agree on scales, and what they send is added up as it is: fewer bytes from three
    # workers on.
    sharedScale: bool


class _TextSourceRequired(TypedDict):
    # The file, found as csv.uri is.
    uri: str


# A text. Its samples are stretches of spec.workload.languageModel.contextLength symbols, one after
# another; what is left at its end is left out.
class TextSource(_TextSourceRequired, total=False):
    # Where the text begins, as a share of the file: 0.9 leaves out the first nine tenths.
    begin: float
    # Where it ends. What ends where another one begins has nothing in common with it.
    end: float


# Numbers beyond a threshold; to be used with errorFeedback.
class ThresholdCodec(TypedDict, total=False):
    # The share of the numbers that is sent, where tau is not given.
    density: float
    # The threshold. Without it each tensor's is where density of its numbers lie.
    tau: float


# The largest numbers; to be used with errorFeedback.
class TopKCodec(TypedDict, total=False):
    # The share of the numbers that is sent.
    density: float
    # The share of them by which the threshold is estimated, at least; 1: all.
    sampleRatio: float


# Over whom pushes reach the servers. A worker that sums up the pushes of its group sends one for
# all; what it does not take in time goes to the servers by itself. For bulkSynchronous,
# asynchronous, boundedDelay, staleSynchronous and softSync.
class Topology(TypedDict, total=False):
    # Every worker pushes to the servers by itself.
    flat: FlatTopology
    # The workers of one node reduce among themselves, and one of them pushes (MXNet's two-level
    # store).
    hostReduce: HostReduceTopology
    # Workers push to aggregators, each the first of a group of so many workers (Gupta, Zhang and
    # Wang 2015).
    tree: TreeTopology


class _TrainingJobRequired(TypedDict):
    # Always starling.dev/v1alpha1.
    apiVersion: str
    # Always TrainingJob.
    kind: str
    # Name, namespace, labels and annotations.
    metadata: ObjectMeta
    # What is wanted.
    spec: TrainingJobSpec


# A model to train, the data to train it on, and the elastic processes that do it.
class TrainingJob(_TrainingJobRequired, total=False):
    # What is: written by the controller, never by users.
    status: TrainingJobStatus


class _TrainingJobSpecRequired(TypedDict):
    # What is computed.
    workload: Workload


# What is wanted of a job.
class TrainingJobSpec(_TrainingJobSpecRequired, total=False):
    # When and where checkpoints are written.
    checkpoint: Checkpoint
    # In which form it travels, and what of it is left out.
    compression: Compression
    # How what the members exchange travels between them.
    dataPlane: DataPlane
    # What it is computed on; a job that brings its own container has none, and a PyTorch program
    # reads its own.
    dataset: Dataset
    # Over whom updates travel.
    exchange: Exchange
    # Pacing and faults, for tests and studies only.
    experiment: Experiment
    # Where its metrics are told to programs of others; a job that brings its own container has
    # none.
    export: Export
    # The numbers of a network; by default all have 32 bits.
    numerics: Numerics
    # How parameters follow gradients.
    optimizer: Optimizer
    # What a named system has by default (horovod or pytorchDdp: ring and size of buckets, none of
    # its other mechanisms); what is written beside it wins.
    preset: str
    # The roles of the job, their sizes and pod templates.
    replicaSpecs: ReplicaSpecs
    # Bit-identical results for any number of workers up to 16, at the cost of more bytes
    # exchanged.
    reproducible: bool
    # How the job's life is managed: suspension, clean-up, deadlines, retries.
    runPolicy: RunPolicy
    # Seed of everything random: initial parameters, the order of the samples in each pass,
    # synthetic data, and which changes an eager worker sends first where that is random.
    seed: int
    # When training ends: whichever comes first. Of workload.pytorch its program says it, unless
    # this does.
    stop: Stop
    # The template of an administrator that gives what this job does not say, and bounds what it
    # may: it is applied when the job is made. What it gave, and its bounds, stand in the
    # annotation starling.dev/template: later changes of the template change nothing here.
    templateRef: TemplateRef
    # What is exchanged, and how often.
    update: Update
    # When and how the model is validated.
    validation: Validation


# How a job fares.
class TrainingJobStatus(TypedDict, total=False):
    # Seconds active before the present stretch: suspension stops the clock.
    activeSeconds: float
    # Nodes that pods of this job are kept away from for a while, for too many of them failed
    # there.
    avoidedNodes: list[AvoidedNode]
    # When the job ended.
    completionTime: str
    # Created, Running, Restarting, Suspended, Succeeded, Failed.
    conditions: list[Condition]
    # The coordinator process that leads: each one gets a number of its own, by compare-and-swap.
    coordinator: CoordinatorGrant
    # Pod failures since the last settled step; what backoffLimit bounds.
    failures: int
    # The settled step when failures was last set to 0.
    failuresSinceStep: int
    # Seconds by what they were spent on, summed over all processes that there have been: of
    # workers by the activity's name, of parameter servers as server/NAME. docs/operations.md has
    # the names.
    goodput: dict[str, float]
    # The newest incidents, at most 20: what failed, why, what was done, what it cost.
    incidents: list[Incident]
    # The newest checkpoint that is whole.
    lastCheckpoint: CheckpointStatus
    # The newest view that a report has named.
    newestView: int
    # The generation of the spec that this status speaks of.
    observedGeneration: int
    # How far training is: settled steps only.
    progress: Progress
    # Pods by role.
    replicaStatuses: dict[str, ReplicaStatus]
    # The wanted number of workers, for the scale subresource.
    replicas: int
    # The newest request for a checkpoint that was carried out.
    requestedCheckpoint: RequestedCheckpoint
    # Restarts of pods and of processes in them, in all.
    restarts: int
    # The end of the story.
    result: Result
    # The present round of a job that brings its own container.
    round: ContainerRound
    # The workers' label selector, for the scale subresource.
    selector: str
    # When the first pod was created.
    startTime: str
    # One word for people: Pending, Running, Restarting, Suspended, Succeeded or Failed. The
    # conditions are the truth.
    state: str


# What an administrator gives to the jobs that name it in spec.templateRef, and what they may not
# go beyond. ClusterTrainingTemplate is the same for all namespaces. A change is for jobs that are
# made after it.
class TrainingTemplate(TypedDict):
    # Always starling.dev/v1alpha1.
    apiVersion: str
    # TrainingTemplate, or ClusterTrainingTemplate.
    kind: str
    # Name, namespace, labels and annotations.
    metadata: ObjectMeta
    # What it gives and what it bounds.
    spec: TrainingTemplateSpec


# What a template gives, and what it bounds.
class TrainingTemplateSpec(TypedDict, total=False):
    # What no job that names it may go beyond.
    bounds: TemplateBounds
    # Fields of a job's spec, which a job has where it says nothing itself: built-in default <
    # preset < template < job. What the schema itself gives a default (replicas, minReplicas,
    # restartPolicy, cleanPodPolicy, backoffLimit, suspend) cannot be given here, for a job always
    # has it.
    defaults: dict[str, Any]
    # What it is for, in a sentence for people.
    description: str
    # A PodTemplateSpec under the template of every role of the job, merged in the same way: image,
    # tolerations, node selector, resources of its container "trainer".
    podTemplate: dict[str, Any]


# A transformer as in GPT-2 (Radford et al. 2019).
class Transformer(TypedDict, total=False):
    # How many blocks.
    blocks: int
    # Share of the values that are left out in training, after the embedding and in each block.
    dropout: float
    # Heads of each block's attention; they divide the width.
    heads: int
    # Width of each place.
    width: int


class _TransformerBlockRequired(TypedDict):
    # How many heads its attention has; they divide the width.
    heads: int


# A block of a transformer, normalized first (Xiong et al. 2020). Its tensors are named as those of
# PyTorch's TransformerEncoderLayer.
class TransformerBlock(_TransformerBlockRequired, total=False):
    # Whether a place sees only those before it and itself.
    causal: bool
    # Share of the values that are left out in training, of what attention and dense layers add.
    dropout: float
    # Width between its two dense layers; by default four times that of its input.
    hidden: int


# Groups of workers.
class TreeTopology(TypedDict, total=False):
    # Workers in a group, its aggregator among them.
    fanout: int


# Of each four weights of a row the two that are smaller at first.
TwoOfFour = dict[str, Any]


# What is exchanged, and how often.
class Update(TypedDict, total=False):
    # Of fully connected layers, where that is less: of each sample what goes into the layer and
    # the errors of what comes out, which the receiver multiplies (Chilimbi et al. 2014). Of other
    # layers their gradients.
    activations: ActivationsUpdate
    # The gradient of every unit of work.
    gradient: GradientUpdate
    # The steps that a worker's threads have taken on weights that they share without locks (Recht
    # et al. 2011).
    hogwild: Hogwild
    # Workers go on by themselves, and exchange what several units of work sum up to (Downpour,
    # Dean et al. 2012).
    localSgd: LocalSgd


class _UsageItemsRequired(TypedDict):
    # Cores that their processes asked for, times the seconds that they were there
    coreSeconds: float
    # How many
    jobs: int
    # Of workers and parameter servers
    processSeconds: float


class UsageItems(_UsageItemsRequired, total=False):
    # Who made the jobs; empty: nobody knows
    account: str
    job: str
    namespace: str


_UsageKeywords = TypedDict(
    "_UsageKeywords",
    {
        # As RFC 3339; absent: ever
        "from": "str",
    },
    total=False,
)


class Usage(_UsageKeywords):
    # That bring their own container: what they asked for counts
    estimatedJobs: int
    items: list[UsageItems]
    # As RFC 3339
    to: str
    # That an older version recorded, which are not counted
    unknownJobs: int


# When and how the model is validated.
class Validation(TypedDict, total=False):
    # Passes over the training set between two validations.
    everyEpochs: int
    # Keep the parameters of the best validation loss as the result; where stop.target ends
    # training, those that reached it.
    keepBest: bool
    # Stop after this many validations without a better loss; 0 never stops.
    patience: int


class Version(TypedDict):
    apiVersion: str
    version: str


# The workers.
class WorkerSpec(TypedDict, total=False):
    # Scaling stops here; by default there is no other limit than 1024.
    maxReplicas: int
    # Training starts, and goes on, with this many; by default 1.
    minReplicas: int
    # Give a worker, a parameter server or a coordinator that was killed for want of memory more of
    # it; not given: the same again.
    onOutOfMemory: OnOutOfMemory
    # How many are wanted.
    replicas: int
    # What an exit means for the job.
    restartPolicy: Literal["OnFailure", "ExitCode", "Never"]
    # A PodTemplateSpec, merged over the defaults; its container is called "trainer".
    template: dict[str, Any]


# What is computed: exactly one kind.
class Workload(TypedDict, total=False):
    # Samples given back by a neural network: what it gives back badly is unlike what it learnt
    # from.
    autoencoder: Autoencoder
    # Supervised classification by a neural network, cross-entropy loss.
    classification: Classification
    # Whatever the image of your own container does: it gets the variables of its framework's
    # rendezvous and elasticity by restart.
    container: Container
    # Prediction of a text's next symbol by a neural network, cross-entropy loss.
    languageModel: LanguageModel
    # A number predicted by a weighted sum of the features, mean squared error.
    linearRegression: LinearRegression
    # Your own PyTorch program: its loop, made elastic by starling.torch.
    pytorch: PyTorch
    # Numbers predicted by a neural network.
    regression: Regression
    # Binary classification of sparse samples by logistic regression; it needs libsvm data and
    # exchange.parameterServer.
    sparseLogisticRegression: SparseLogisticRegression
