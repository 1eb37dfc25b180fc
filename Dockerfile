# Two images from one file:
#
#   docker build -t sluice .                                            the proxy: Python, Sluice, no shell, nothing else
#   docker build -t sluice-recalibration --target recalibration .       the nightly job: Debian, Java 17, PySpark, Sluice
#
# Python packages are wheels pinned with checksums (requirements/); Debian's are what the release has, security fixes
# included. Without Docker, `make check-deploy ARGS=image` runs these very steps in a clean root file system.

# --- what both run on --------------------------------------------------------------------------------------------

FROM debian:bookworm-slim AS base
# Python's compiled modules are kept: the root file system is read-only, so they could not be made at run time.
# Extension modules that nothing here imports would bring libraries of their own.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get upgrade -y \
 && apt-get install -y --no-install-recommends ca-certificates netbase python3 \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/* /var/lib/dpkg/*-old \
 && rm -rf /usr/lib/python3.11/ensurepip /usr/lib/python3.11/lib2to3 /usr/lib/python3.11/pydoc_data \
           /usr/lib/python3.11/test /usr/lib/python3.11/turtle.py /usr/lib/python3.11/__pycache__/turtle.* \
           /usr/lib/python3.11/lib-dynload/_curses* /usr/lib/python3.11/lib-dynload/_dbm* \
           /usr/lib/python3.11/lib-dynload/nis* /usr/lib/python3.11/lib-dynload/readline* \
 && groupadd --gid 65532 sluice \
 && useradd --uid 65532 --gid sluice --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin sluice \
 && rm -f /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow- /etc/subuid- /etc/subgid-

# --- the wheel and the proxy's environment -----------------------------------------------------------------------

FROM debian:bookworm-slim AS build
SHELL ["/bin/bash", "-eu", "-o", "pipefail", "-c"]
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends binutils ca-certificates gcc libc6-dev python3-dev python3-venv \
 && rm -rf /var/lib/apt/lists/*
# The compiled data path (proxy/pump/) belongs into the image.
ENV BUILD_PUMP=yes \
    PIP_CACHE_DIR=/var/cache/pip \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore \
    SOURCE_DATE_EPOCH=315532800
WORKDIR /src
COPY requirements/build.txt requirements/image.txt requirements/
RUN --mount=type=cache,target=/var/cache/pip \
    python3 -m venv /build \
 && /build/bin/pip install --require-hashes --only-binary :all: -r requirements/build.txt \
 && python3 -m venv --without-pip /opt/sluice \
 && /build/bin/pip --python /opt/sluice/bin/python3 install --no-compile --require-hashes --only-binary :all: -r requirements/image.txt
COPY pyproject.toml hatch_build.py README.md LICENSE NOTICE ./
COPY protocol protocol
COPY proxy proxy
COPY quotas quotas
COPY recalibration recalibration
COPY usage usage
# Libraries' tests, headers and debugging symbols go. Modules are compiled once, valid whatever their files' times are.
RUN /build/bin/python -m hatchling build -t wheel -d /dist \
 && /build/bin/pip --python /opt/sluice/bin/python3 install --no-compile --no-deps --no-index /dist/*.whl \
 && find /opt/sluice -type d \( -name tests -o -name include \) -prune -exec rm -rf {} + \
 && find /opt/sluice \( -name '*.pyx' -o -name '*.pxd' -o -name '*.c' -o -name '*.h' \) -delete \
 && find /opt/sluice -name '*.so*' -type f -exec strip --strip-unneeded {} + \
 && rm -f /opt/sluice/bin/[Aa]ctivate* \
 && /opt/sluice/bin/python3 -m compileall -q -f --invalidation-mode unchecked-hash /opt/sluice/lib

# --- the nightly job ---------------------------------------------------------------------------------------------

FROM build AS build-recalibration
COPY requirements/recalibration.txt requirements/
# PySpark is published as source alone, which is its Python and its jars packed up; all else are wheels.
RUN --mount=type=cache,target=/var/cache/pip \
    /build/bin/pip wheel --no-deps --no-build-isolation --require-hashes --only-binary :all: --no-binary pyspark \
      -w /wheels -r requirements/recalibration.txt \
 && /build/bin/pip --python /opt/sluice/bin/python3 install --no-compile --no-deps --no-index /wheels/*.whl \
 && rm -rf /wheels \
 && find /opt/sluice -type d -name tests -prune -exec rm -rf {} + \
 && /opt/sluice/bin/python3 -m compileall -q -f --invalidation-mode unchecked-hash /opt/sluice/lib

# The jars that Spark lacks for S3, each checked against the lock file that lies beside the module.
RUN PYTHONPATH="$(echo /opt/sluice/lib/python3*/site-packages)" \
    /build/bin/python -m sluice.proxy spark-jars /opt/spark-jars

FROM base AS recalibration
# The folder is not in slim images, and the package's alternatives want it.
# hadolint ignore=DL3008
RUN mkdir -p /usr/share/man/man1 \
 && apt-get update \
 && apt-get install -y --no-install-recommends openjdk-17-jre-headless \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
COPY --from=build-recalibration /opt/sluice /opt/sluice
COPY --from=build-recalibration /opt/spark-jars /opt/spark-jars
LABEL org.opencontainers.image.title="Sluice recalibration" \
      org.opencontainers.image.description="The nightly job that makes proposals for quotas out of Sluice's access log" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="docker.io/library/debian:bookworm-slim"
ENV PATH=/opt/sluice/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1 \
    SLUICE_SPARK_JARS=/opt/spark-jars
# Spark keeps what does not fit into memory below /tmp: mount a volume there.
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["/opt/sluice/bin/sluice"]
CMD ["recalibrate", "--help"]

# --- the proxy's root: Python and the libraries that it loads, file by file out of Debian's packages ---------------

FROM base AS files
SHELL ["/bin/bash", "-eu", "-o", "pipefail", "-c"]
# dpkg's list of these packages comes with them, so that scanners know what they look at.
RUN packages=(base-files libbz2-1.0 libc6 libcrypt1 libexpat1 libffi8 libgcc-s1 liblzma5 libpython3.11-minimal \
      libpython3.11-stdlib libsqlite3-0 libssl3 libstdc++6 libuuid1 media-types netbase python3-minimal \
      python3.11-minimal tzdata zlib1g) \
 && mkdir -p /image/etc /image/usr/bin /image/usr/lib /image/usr/lib64 /image/usr/sbin /image/var/lib/dpkg \
 && { dpkg-query --listfiles "${packages[@]}" \
   && find /usr/lib/python3.11 /usr/lib/python3 /etc/ssl /usr/lib/ssl /usr/share/ca-certificates \
   && ls -d /lib* /bin /sbin /etc/group /etc/nsswitch.conf /etc/passwd /usr/share/doc/ca-certificates/copyright; } \
  | sort -u \
  | while read -r path; do if [ -e "$path" ] || [ -L "$path" ]; then printf '%s\n' "$path"; fi; done > /files \
 && tar --create --file=- --no-recursion --files-from=/files | tar --extract --file=- --directory=/image \
 && rm -rf /image/etc/update-motd.d /image/usr/share/lintian /image/usr/share/base-files \
 && dpkg-query --status "${packages[@]}" ca-certificates > /image/var/lib/dpkg/status

# --- the proxy: last, so that it is what is built without --target ------------------------------------------------

FROM scratch AS proxy
COPY --from=files /image /
COPY --from=build /opt/sluice /opt/sluice
ARG VERSION=unreleased
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Sluice" \
      org.opencontainers.image.description="A proxy that speaks Kafka's protocol and enforces quotas per principal, evenly" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="docker.io/library/debian:bookworm-slim"
# Without a file (all options in SLUICE_* variables): docker run -e SLUICE_CONFIG= …
ENV PATH=/opt/sluice/bin:/usr/bin \
    PYTHONUNBUFFERED=1 \
    SLUICE_CONFIG=/etc/sluice/sluice.yaml
# A number, so that Kubernetes' runAsNonRoot can see that it is not root.
USER 65532:65532
WORKDIR /
EXPOSE 9092 9308 9309
STOPSIGNAL SIGTERM
# Kubernetes does not look at this; its probes ask the probe port themselves.
HEALTHCHECK --interval=15s --timeout=3s --start-period=10s --retries=3 \
    CMD ["/opt/sluice/bin/sluice", "healthcheck"]
ENTRYPOINT ["/opt/sluice/bin/sluice"]
CMD ["run"]
