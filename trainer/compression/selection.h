// SPDX-License-Identifier: Apache-2.0
// Which numbers are the largest, for codecs that send a share of them.
//
// A full selection costs more than all else of a codec, so the threshold is taken from a sample
// (Aji and Heafield 2017): every so many numbers one, and more of them the smaller the share is,
// for few of a sample would be above it. What the sample says wrong is made good: a threshold that
// far too few reach is lowered (Lin et al. 2018), and of far too many the largest are taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace starling::compression {

// No codec that names places sends more than this share of the numbers: they would take as many
// bytes as all of them.
inline constexpr double kMostDensity = 0.25;
inline constexpr double kSampleRatio = 0.001;  // unless the job says another

// How many `density` of `count` numbers are, one at least.
std::size_t Wanted(std::size_t count, double density);
// The most that Largest selects.
std::size_t MostSelected(std::size_t count, double density);

// The magnitude that about `density` of the numbers reach, by a sample of them: see Largest.
float SampledThreshold(std::span<const float> values, double density, double sample_ratio);

// The places, ascending, of the numbers of the largest magnitudes, about `density` of all and none
// that is 0. `sample_ratio` of the numbers, or enough of them, say where the threshold lies; from
// 1 on it is exact. Equal magnitudes: the first ones.
std::vector<std::uint32_t> Largest(std::span<const float> values, double density,
                                   double sample_ratio);

}  // namespace starling::compression
