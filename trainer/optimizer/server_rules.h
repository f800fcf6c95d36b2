// SPDX-License-Identifier: Apache-2.0
// Update rules for the servers' side: what asynchronous training adds to SGD, momentum and Adam,
// which MakeOptimizer gives and servers use as they are.
//
// All of them are Optimizers: state in named vectors beside the parameters, every element alone,
// any range by itself. Two need to know what the gradient's sender had read
// (Optimizer::remembered): the delay-compensated rule the parameters, AdaRevision the sum of
// gradients. How to add one is said in optimizer.h; a factory here is only for what code makes
// without a job's spec.
#pragma once

#include <memory>

#include "trainer/optimizer/optimizer.h"

namespace starling::optimizer {

// What is pushed is the change itself: parameters += update. The learning rate is not looked at.
std::unique_ptr<Optimizer> MakeAdd();

// Adagrad (Duchi, Hazan, Singer 2011), DistBelief's choice for its servers:
// squares += g^2; w -= rate / (sqrt(squares) + epsilon) * g.
struct Adagrad {
  double epsilon = 1e-10;
};
std::unique_ptr<Optimizer> MakeAdagrad(const Adagrad& options);

// Adaptive revision (McMahan and Streeter 2014): Adagrad for delayed gradients. `back` is the sum
// of the gradients that came since the sender's read. Without delay it is Adagrad, bit for bit.
std::unique_ptr<Optimizer> MakeAdaRevision(const Adagrad& options);

// DC-ASGD (Zheng et al. 2017): w -= rate * (g + lambda * g^2 * (w - w as read)). Adaptive: lambda
// is divided by the root of a running mean of g^2.
struct DelayCompensated {
  double lambda = 0.04;
  bool adaptive = false;
  double decay = 0.95;
  double epsilon = 1e-7;
};
std::unique_ptr<Optimizer> MakeDelayCompensated(const DelayCompensated& options);

// FTRL-Proximal (McMahan et al. 2013), for sparse models: L1 makes exact zeros. The learning rate
// is the paper's alpha.
struct Ftrl {
  double beta = 1;
  double l1 = 0;
  double l2 = 0;
};
std::unique_ptr<Optimizer> MakeFtrl(const Ftrl& options);

// Proximal gradient descent for an L1 penalty (ISTA; Li et al. 2014):
// w = soft(w - rate * g, rate * l1), where soft(x, t) is x moved towards 0 by t, and 0 where that
// is beyond it. It keeps nothing; what it makes 0 is +0.
std::unique_ptr<Optimizer> MakeProximalGradient(double l1);
// Whether that rule leaves a weight as it is, bit for bit, whatever the rate: it is 0, and the
// gradient meets the conditions of Karush, Kuhn and Tucker there.
bool StaysZero(float weight, float gradient, double l1);

}  // namespace starling::optimizer
