# syntax=docker/dockerfile:1
# The daemon in a container:
#     docker build -t kafka-quotas .
#     docker run --network host -v quotas:/var/lib/kafka-quotas kafka-quotas --upstream broker-1:9092 --listen 0.0.0.0:19092
# Clients are sent to the host name that they connected to. Behind a port mapping give --advertised-host, and map the brokers' ports as well.
# The driver and the executors of the pipeline's jobs run in the same image with Spark and a JVM (examples/kubernetes/pipeline.yaml):
#     docker build --build-arg EXTRAS=daemon,spark --build-arg PACKAGES=default-jre-headless -t kafka-quotas-spark .
# Any base with Python 3.11 or newer and its venv module will do; PACKAGES are Debian's. A release names its base by digest:
#     docker build --build-arg BASE=docker.io/library/python:3.11-slim@sha256:... -t kafka-quotas .
# docs/how-to/install.md says where the digest comes from.
ARG BASE=docker.io/library/python:3.11-slim

FROM ${BASE} AS build
ARG EXTRAS=daemon
WORKDIR /source
RUN python3 -m venv --without-pip /opt/kafka-quotas && python3 -m venv /opt/build
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY man man
COPY completions completions
COPY examples examples
COPY docker docker
# By hash what the image takes by default; with other extras their own ranges hold. pip stays behind in the build stage.
RUN pip="/opt/build/bin/pip --no-cache-dir" into="--python /opt/kafka-quotas/bin/python" \
    && $pip install --require-hashes --only-binary :all: -r docker/build-requirements.txt \
    && $pip wheel --no-deps --no-build-isolation --wheel-dir /wheel . \
    && $pip $into install --no-compile --require-hashes --only-binary :all: -r docker/requirements.txt \
    && if [ "${EXTRAS}" = daemon ]; then $pip $into install --no-compile --no-index --no-deps /wheel/*.whl; \
    else $pip $into install --no-compile "$(echo /wheel/*.whl)[${EXTRAS}]"; fi

FROM ${BASE}
ARG PACKAGES=
RUN if [ -n "${PACKAGES}" ]; then \
    apt-get update && apt-get install --yes --no-install-recommends ${PACKAGES} && rm -rf /var/lib/apt/lists/*; fi
LABEL org.opencontainers.image.title="kafka-quotas" \
      org.opencontainers.image.description="Set, explain, enforce and prove Apache Kafka client quotas." \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/kafka-quotas /opt/kafka-quotas
# A numeric user, so that Kubernetes can see that it is not root; Java asks for its name and its home.
RUN echo "kafka-quotas:x:10001:10001::/var/lib/kafka-quotas:/usr/sbin/nologin" >> /etc/passwd \
    && ln -s /opt/kafka-quotas/bin/kafka-quotas /usr/local/bin/kafka-quotas \
    && mkdir -p /var/lib/kafka-quotas && chown 10001:10001 /var/lib/kafka-quotas && chmod 0700 /var/lib/kafka-quotas
# Defaults of options: an option beats its variable, and `docker run -e` replaces a variable.
ENV HOME=/var/lib/kafka-quotas PYTHONDONTWRITEBYTECODE=1 \
    KAFKA_QUOTAS_STORE=local:/var/lib/kafka-quotas/quotas.db \
    KAFKA_QUOTAS_DAEMON_CONTROL=/var/lib/kafka-quotas/daemon.sock \
    KAFKA_QUOTAS_DAEMON_STATE_FILE=/var/lib/kafka-quotas/state.json \
    KAFKA_QUOTAS_DAEMON_METRICS_PORT=0.0.0.0:9404 \
    KAFKA_QUOTAS_DAEMON_LOG_FORMAT=json
USER 10001:10001
VOLUME /var/lib/kafka-quotas
EXPOSE 19092 9404
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s CMD ["python3", "-c", \
    "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9404/healthz', timeout=3)"]
ENTRYPOINT ["kafka-quotas", "daemon", "run"]
