// SPDX-License-Identifier: Apache-2.0
// No tests: a precompiled header needs a target with a source. GoogleTest brings main().
