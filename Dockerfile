# groupkeeper in a container:
#
#   docker build -t groupkeeper .
#   docker run --read-only -v groupkeeper:/var/lib/groupkeeper -p 9092:9092 -p 9308:9308 \
#     -e GROUPKEEPER_KAFKA__ADVERTISED=localhost:9092 groupkeeper
#
# docs/operate/operations.md has the rest.

FROM python:3.11-slim AS build
# for what mypyc compiles: the hot path (docs/understand/performance.md)
RUN apt-get update \
 && apt-get install --yes --no-install-recommends gcc libc6-dev
# bytecode is made here, once: the root of the running container may be read-only
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 HATCH_BUILD_HOOK_ENABLE_MYPYC=1
# holds for what the build itself needs as well, the compiler among it: pip's -c does not
ENV PIP_CONSTRAINT=/src/constraints.txt
WORKDIR /src
COPY constraints.txt ./
RUN python -m venv /opt/groupkeeper
COPY pyproject.toml README.md LICENSE ./
COPY groupkeeper ./groupkeeper
COPY coordinator ./coordinator
COPY protocol ./protocol
COPY storage ./storage
COPY pipeline ./pipeline
COPY clients ./clients
RUN /opt/groupkeeper/bin/pip install '.[server,postgres,zookeeper,consul]' \
 && /opt/groupkeeper/bin/pip uninstall --yes pip setuptools \
 && /opt/groupkeeper/bin/groupkeeper --version

FROM python:3.11-slim
RUN useradd --system --uid 9092 --home-dir /var/lib/groupkeeper --shell /usr/sbin/nologin groupkeeper \
 && install --directory --owner=groupkeeper --group=groupkeeper --mode=0700 /var/lib/groupkeeper
COPY --from=build /opt/groupkeeper /opt/groupkeeper
COPY deploy/image.toml /etc/groupkeeper/config.toml
ENV PATH=/opt/groupkeeper/bin:$PATH PYTHONDONTWRITEBYTECODE=1
USER groupkeeper
WORKDIR /var/lib/groupkeeper
VOLUME /var/lib/groupkeeper
EXPOSE 9092 9308
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD ["groupkeeper", "health", "--config", "/etc/groupkeeper/config.toml"]
ENTRYPOINT ["groupkeeper"]
CMD ["serve", "--config", "/etc/groupkeeper/config.toml"]
