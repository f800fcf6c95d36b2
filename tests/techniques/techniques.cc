// SPDX-License-Identifier: Apache-2.0
#include "tests/techniques/rows.h"

namespace starling::techniques {

const std::vector<Technique>& Techniques() {
  static const auto* const kTechniques = new std::vector<Technique>{
      {"PS-1", "Parameter server (Li et al. 2013, 2014)",
       "random pushes equal a map's sums; bounded delay lets no task begin early, and unbounded "
       "nobody waits; a list of keys travels once; gradients that cannot change an L1-regularised "
       "zero do not travel, and the "
       "solution is the same; no acknowledged push is lost with one of two servers",
       "the bound is off; another list of keys; a filter of twice the penalty; no replica",
       ParameterServer},
      {"PS-2", "Downpour SGD with server-side Adagrad (Dean et al. 2012)",
       "close to synchronous SGD at equal samples; every 5 steps a fifth of the bytes; the "
       "accumulators follow from the push log; while a warm start lasts only the first replica "
       "works",
       "eight replicas without warm start work at once and begin with a higher loss", Downpour},
      {"PS-4", "Synchronous SGD",
       "n workers with a share of the batch each equal one worker with all of it",
       "gradients of unequal shares averaged as if they were equal", BulkSynchronous},
      {"PS-5", "Asynchronous SGD",
       "measured staleness is n - 1; nobody waits for a straggler; close to synchronous SGD at a "
       "rate divided by the root of n",
       "eight times the rate diverges, where synchronous SGD does not", Asynchronous},
      {"PS-6", "Backup workers (Chen et al. 2016)",
       "a straggler and a dead worker cost nothing; each update is the mean of exactly n - b "
       "gradients of its own step",
       "all are waited for; a class that only the slow worker has is not learned", BackupWorkers},
      {"PS-7", "Hogwild (Recht et al. 2011)",
       "two threads without locks reach the loss of one, in one process and in several; no "
       "addition is lost",
       "changes that are written over one another are learned worse; reading and then writing "
       "loses "
       "one",
       HogwildThreads},
      {"PS-8", "Stale synchronous parallel (Ho et al. 2013)",
       "every read has all updates but those of the last s clocks, and its own; s = 0 is "
       "synchronous SGD; a rotating straggler costs less with s = 3, at no loss of accuracy",
       "without the bound reads are older", StaleSynchronous},
      {"PS-9", "Managed communication and AdaRevision (Wei et al. 2015)",
       "rows of a factorisation: the budget holds in every second, and so does stale synchronous "
       "(a job ranks shards); AdaRevision is Adagrad "
       "without delay and better with it",
       "without a budget more is sent", ManagedCommunication},
      {"PS-10", "n-softsync and rates by staleness (Gupta, Zhang and Wang 2015)",
       "measured staleness is about n and at most 2 n; dividing the rate by it does not cost "
       "accuracy; the root of a tree of aggregators gets one push of each, and goes on when one "
       "dies",
       "the constant rate loses accuracy; without aggregators the root gets all", SoftSync},
      {"PS-14", "Delay-compensated SGD (Zheng et al. 2017)",
       "a late step is the first-order expansion of the step in time; no delay, no difference; "
       "memory is M (1 + n); eight updates late, MNIST is learned better than without",
       "the server keeps no copy of what was read", DelayCompensation},
      {"PS-18", "Wait-free backpropagation (Zhang et al. 2015)",
       "layers larger than what a link takes at once are on the wire while earlier ones are still "
       "computed",
       "nobody looks after the links meanwhile; everything is pushed at the end", WaitFree},
      {"PS-19", "Two-level key-value store (MXNet)",
       "a host's workers send one update; an array is cut where each part is large enough for a "
       "shard; a rule gives the same bits at the server as beside the model",
       "every worker sends its own", TwoLevelStore},
      {"PS-20", "Offload of fully connected layers (Project Adam, Chilimbi et al. 2014)",
       "activations and errors travel, 4 K (M + N) bytes; weights equal those of the dense push; "
       "a successor of the coordinator has the same map, though load has moved a part of it",
       "the dense push; a map by names alone", FactorOffload},
      {"PS-22", "Elastic membership",
       "workers and servers come and go: equal bits with whole numbers, every lease once, the loss "
       "falls as without; no broken invariant in made-up histories",
       "the deaths are not heard of; half the rate; a lease in the ledger is applied again",
       ElasticMembership},
      {"Z-1", "1-bit SGD (Seide et al. 2014)",
       "rows of n numbers take ceil(n / 32) words and two means; what is sent and what is kept are "
       "what was given; with error feedback as good as synchronous SGD",
       "no error feedback", OneBitSgd},
      {"Z-2", "Threshold quantization (Strom 2015)",
       "what is sent is tau with a sign, 4 bytes each, about a hundredth; with error feedback as "
       "good as synchronous SGD",
       "no error feedback", ThresholdSending},
      {"Z-3", "Gradient dropping (Aji and Heafield 2017)",
       "about a hundredth is sent, 8 bytes each, by a sampled threshold; with error feedback as "
       "good as synchronous SGD",
       "no error feedback", GradientDropping},
      {"Z-4", "Deep gradient compression (Lin et al. 2018)",
       "a thousandth is sent, with momentum correction, masking and warm-up as good as synchronous "
       "SGD with momentum",
       "what is not sent is not kept", DeepCompression},
      {"Z-5", "TernGrad (Wen et al. 2017)",
       "numbers are right on average, 2 bits each; nearly as good as synchronous SGD",
       "every draw is the same", TernaryGradients},
      {"Z-6", "Sparse binary compression (Sattler et al. 2019)",
       "places take 8.1 bits; one of a hundred numbers every ten local steps is nearly as good as "
       "synchronous SGD, in 500 times fewer bytes where biases travel as they are, and in "
       "thousands of times fewer of weights alone",
       "no error feedback", SparseBinary},
      {"Z-7", "Entropy-based gradient compression (after Kuang et al. 2019)",
       "the budget holds, and tensors whose magnitudes spread wider send more; as good as Z-4",
       "what is not sent is not kept", EntropyShares},
      {"Z-8", "Fixed point with stochastic rounding (Gupta et al. 2015)",
       "weights are multiples of 2^-14, right on average, and learn as well as in 32 bits",
       "rounding to nearest loses small updates", FixedPointWeights},
      {"Z-9", "Dynamic fixed point (Courbariaux, Bengio and David 2015)",
       "weights of 12 bits, in ranges that follow them, learn as well as of 32",
       "ranges that do not follow", DynamicRanges},
      {"Z-10", "Mixed precision and loss scaling (Micikevicius et al. 2018)",
       "weights and gradients in 16 bits are learned with as well as in 32; small gradients are "
       "kept by a scaled loss; an infinity at one worker makes all skip the same step",
       "a loss that is not scaled; each worker judges its own gradient", MixedPrecision},
      {"Z-11", "Layer-wise adaptive rates (LARS; You, Gitman and Ginsburg 2017)",
       "a step is as long beside its weights however long the gradient; large batches are learned",
       "steps of SGD are as long as gradients are", LayerRates},
      {"Z-12", "Logarithmic numbers (Dally)",
       "a byte each, within 4.5 percent, and products are sums of codes; as good as synchronous "
       "SGD",
       "even steps for the same numbers lose the small ones", LogarithmicNumbers},
      {"Z-13", "Optimal clipping (as int8 on the wire)",
       "a byte each; a clip by Newton's iteration never loses more than none; as good as "
       "synchronous SGD",
       "no clipping loses more of numbers with a long tail", ClippedBytes},
      {"Z-14", "Pruning by magnitude, and two of four (Zhu and Gupta 2017)",
       "four fifths of the weights become 0, or two of each four in a row, and stay so at every "
       "worker; the other fifth learns as well",
       "pruned at the end, not while it learns", PrunedWeights},
  };
  return *kTechniques;
}

}  // namespace starling::techniques
