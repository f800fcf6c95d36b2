# syntax=docker/dockerfile:1
# SPDX-License-Identifier: Apache-2.0
# One image with all of Starling's programs; a pod's command chooses among them. It runs as any user
# but root and with a read-only root file system.
#
#   docker build -t starling:dev .                 compiles everything here (the default)
#   docker build --build-arg PROGRAMS=ready ...    takes programs that are compiled already, from
#                                                  bin/ of the build context (Debian 12's libraries),
#                                                  and from python/ the wheel, unpacked
ARG BASE=docker.io/library/debian:bookworm-slim
ARG PROGRAMS=compiled

FROM ${BASE} AS compiled
WORKDIR /src
COPY cmake/packages.txt cmake/packages.txt
RUN apt-get update -qq \
 && grep -vE '^\s*(#|$)' cmake/packages.txt | sed 's/|.*//' \
    | DEBIAN_FRONTEND=noninteractive xargs apt-get install -y -qq --no-install-recommends >/dev/null \
 && rm -rf /var/lib/apt/lists/*
COPY . .
ARG JOBS=2
# As on machines that fill a compiler cache: it knows an object by the locale too.
ENV LANG=C.UTF-8
# What the image holds and no more: neither tests nor benchmarks.
ARG BINARIES="starling starling-controller starling-coordinator starling-server starling-worker starling-supervisor libstarling_engine.so"
RUN mkdir -p build /out/bin \
 && cmake --preset release >build/release.log \
 && cmake --build --preset release -j ${JOBS} --target bin/libstarling_embed.so $(printf 'bin/%s ' ${BINARIES}) \
 && python/wheel.sh build/release/bin dist && python3 -m zipfile -e dist/*.whl /out/python \
 && cd build/release/bin \
 && install -s ${BINARIES} /out/bin/

FROM scratch AS ready
COPY bin/ /out/bin/
COPY python/ /out/python/

FROM ${PROGRAMS} AS programs

# Debian's libtorch names libraries of which it calls nothing (video, pictures, databases, OpenCL),
# and they name a hundred more. Without them the image has half the size, and a worker starts sooner.
FROM ${BASE} AS runtime
RUN apt-get update -qq \
 && apt="apt-get install -y -qq --no-install-recommends" && export DEBIAN_FRONTEND=noninteractive \
 && $apt patchelf >/dev/null \
 && mkdir /torch && cd /torch && chmod 777 . && apt-get download -qq libtorch1.13 \
 && dpkg-deb -R libtorch1.13_*.deb files \
 && rm -r files/DEBIAN/md5sums files/usr/share/doc files/usr/lib/*/libtorch_python.so* \
 && unused='lib(av|sw|opencv|lmdb|leveldb|snappy|zmq|zstd|OpenCL)|ocl-icd' \
 && library=$(readlink -f files/usr/lib/*/libtorch_cpu.so.1.13) \
 && for name in $(patchelf --print-needed "$library" | grep -E "^($unused)"); do \
      patchelf --remove-needed "$name" "$library"; \
    done \
 && perl -i -pe "s/^Depends: (.*)/'Depends: ' . join(', ', grep { !\/^($unused)\/ } split(\/, \/, \$1))/e" \
      files/DEBIAN/control \
 && dpkg-deb -b files libtorch.deb >/dev/null \
 && $apt libgrpc++1.51 libprotobuf32 libonnx1 libabsl20220623 libspdlog1.10 libfmt9 libyaml-cpp0.7 \
    libprometheus-cpp-core1.0 libsqlite3-0 libpq5 libcurl4 libturbojpeg0 libpng16-16 ca-certificates libssl3 zlib1g libopenblas0-pthread ./libtorch.deb >/dev/null \
 && apt-get purge -y -qq patchelf >/dev/null && cd / && rm -r /torch \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/* /var/log/* \
    /usr/share/doc/* /usr/share/man/* \
 && mkdir -p /opt/starling \
 && groupadd --gid 65532 starling \
 && useradd --uid 65532 --gid 65532 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin starling

FROM runtime
COPY crds/ /opt/starling/crds/
COPY examples/data/ /opt/starling/data/
COPY --from=programs /out/bin/ /usr/local/bin/
# For pods whose image is another's (starling-supervisor --install --package).
COPY --from=programs /out/python/ /opt/starling/python/
# A library that is missing is found here, not by a pod that cannot start.
RUN ! ldd /usr/local/bin/* | grep "not found"
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Starling" \
      org.opencontainers.image.description="Elastic training of models: controller, coordinator, worker, supervisor and command line" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="debian:bookworm-slim"
USER 65532:65532
WORKDIR /opt/starling
CMD ["starling", "--help"]
