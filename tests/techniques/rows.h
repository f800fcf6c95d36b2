// SPDX-License-Identifier: Apache-2.0
// The checks, one function a row; what each checks stands beside it in techniques.cc.
#pragma once

#include <string>
#include <vector>

#include "tests/techniques/report.h"
#include "trainer/parameter_server/topology.h"

namespace starling::techniques {

void ParameterServer(const Setting& setting, Report& report);       // PS-1
void Downpour(const Setting& setting, Report& report);              // PS-2
void BulkSynchronous(const Setting& setting, Report& report);       // PS-4
void Asynchronous(const Setting& setting, Report& report);          // PS-5
void BackupWorkers(const Setting& setting, Report& report);         // PS-6
void HogwildThreads(const Setting& setting, Report& report);        // PS-7
void StaleSynchronous(const Setting& setting, Report& report);      // PS-8
void ManagedCommunication(const Setting& setting, Report& report);  // PS-9
void SoftSync(const Setting& setting, Report& report);              // PS-10
void DelayCompensation(const Setting& setting, Report& report);     // PS-14
void WaitFree(const Setting& setting, Report& report);              // PS-18
void TwoLevelStore(const Setting& setting, Report& report);         // PS-19
void FactorOffload(const Setting& setting, Report& report);         // PS-20
void ElasticMembership(const Setting& setting, Report& report);     // PS-22
void OneBitSgd(const Setting& setting, Report& report);             // Z-1
void ThresholdSending(const Setting& setting, Report& report);      // Z-2
void GradientDropping(const Setting& setting, Report& report);      // Z-3
void DeepCompression(const Setting& setting, Report& report);       // Z-4
void TernaryGradients(const Setting& setting, Report& report);      // Z-5
void SparseBinary(const Setting& setting, Report& report);          // Z-6
void EntropyShares(const Setting& setting, Report& report);         // Z-7
void FixedPointWeights(const Setting& setting, Report& report);     // Z-8
void DynamicRanges(const Setting& setting, Report& report);         // Z-9
void MixedPrecision(const Setting& setting, Report& report);        // Z-10
void LayerRates(const Setting& setting, Report& report);            // Z-11
void LogarithmicNumbers(const Setting& setting, Report& report);    // Z-12
void ClippedBytes(const Setting& setting, Report& report);          // Z-13

void PrunedWeights(const Setting& setting, Report& report);  // Z-14

// What Z-12 says of layers.
void LearnInLogarithms(const Setting& setting, Report& report);

// What PS-10 and PS-19 say of pushes through groups of two of `what`'s four workers, which lie on
// `nodes` (none: on one).
void ThroughGroups(Report& report, const parameter_server::Topology& topology,
                   const std::vector<std::string>& nodes, const std::string& what);

// What PS-1 says of rows that are named, and of those whose gradients cannot change anything.
void NameRows(const Setting& setting, Report& report);
void LeaveOutWhatCannotChange(const Setting& setting, Report& report);

}  // namespace starling::techniques
