// SPDX-License-Identifier: Apache-2.0
// What the REST service answers, as far as the page reads it. Every field may be absent: a job that
// was only just created has next to nothing, and an older server knows less.

export interface Summary {
  namespace: string;
  name: string;
  uid: string;
  created: string;
  state: string;
  reason?: string;
  summary?: string;
  epoch?: number;
  step?: number;
  loss?: number;
  samplesPerSecond?: number;
  workers?: number;
  deleting?: boolean;
  deleted?: string; // when, of a past job
  createdBy?: string;
  labels?: Record<string, string>;
}

export interface Condition {
  type: string;
  status: string;
  reason?: string;
  message?: string;
  lastTransitionTime?: string;
}

export interface Incident {
  time?: string;
  reason?: string;
  pod?: string;
  podUid?: string;
  exitCode?: number;
  signal?: number;
  message?: string;
  logTail?: string;
  detectionSeconds?: number;
  recoverySeconds?: number;
  repeatedSteps?: number;
}

export interface Progress {
  epoch?: number;
  step?: number;
  samples?: number;
  loss?: number;
  metrics?: Record<string, number>;
  samplesPerSecond?: number;
  estimatedRemaining?: string;
  totalSteps?: number;
  totalEpochs?: number;
  workers?: number;
  summary?: string;
}

export interface ReplicaSpec {
  replicas?: number;
  minReplicas?: number;
  maxReplicas?: number;
}

export interface JobStatus {
  state?: string;
  conditions?: Condition[];
  progress?: Progress;
  goodput?: Record<string, number>;
  incidents?: Incident[];
  lastCheckpoint?: { name?: string; step?: number; time?: string };
  requestedCheckpoint?: { request?: string; checkpoint?: { name?: string; step?: number; time?: string } };
  result?: {
    metrics?: Record<string, number>;
    steps?: number;
    epochs?: number;
    samples?: number;
    seconds?: number;
    targetReached?: boolean;
    model?: { uri?: string; sha256?: string };
  };
  startTime?: string;
  completionTime?: string;
  restarts?: number;
  replicaStatuses?: Record<string, { active?: number; ready?: number }>;
}

export interface Job {
  apiVersion: string;
  kind: string;
  metadata: {
    name: string;
    namespace: string;
    uid: string;
    resourceVersion: string;
    creationTimestamp: string;
    deletionTimestamp?: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
    [other: string]: unknown;
  };
  spec: {
    replicaSpecs?: Record<string, ReplicaSpec>;
    runPolicy?: { suspend?: boolean; ttlSecondsAfterFinished?: number };
    [other: string]: unknown;
  };
  status?: JobStatus;
}

export interface Pod {
  metadata: {
    name: string;
    uid: string;
    creationTimestamp: string;
    deletionTimestamp?: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
  };
  spec?: { nodeName?: string };
  status?: {
    phase?: string;
    podIP?: string;
    startTime?: string;
    containerStatuses?: {
      restartCount?: number;
      state?: {
        running?: { startedAt?: string };
        terminated?: { exitCode?: number; finishedAt?: string; reason?: string };
        waiting?: { reason?: string; message?: string };
      };
    }[];
  };
}

// step, seconds since the job's first point, value
export type Point = [number, number, number];
export type Curves = Record<string, Point[]>;

export interface JobEvent {
  eventTime?: string;
  type?: string;
  reason?: string;
  note?: string;
  regarding?: { kind?: string; name?: string };
}

export interface FieldError {
  path: string;
  detail: string;
}

export interface Problem {
  title: string;
  status: number;
  code: string;
  detail: string;
  remedy?: string;
  errors?: FieldError[];
}
