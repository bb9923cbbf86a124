# Ray's own image for Ray Serve LLM (Ray, CUDA and the vLLM that Ray pins), plus this project.
# Build:  docker build -t brimful:0.2.0 .
ARG RAY_VERSION=2.60.0
# What Ray publishes for this version: {Ray}-{Python}-{CUDA}
ARG RAY_IMAGE=rayproject/ray-llm:${RAY_VERSION}-py312-cu130
FROM ${RAY_IMAGE}

WORKDIR /home/ray/brimful
COPY --chown=1000:100 pyproject.toml README.md LICENSE NOTICE ./
COPY --chown=1000:100 controller controller
COPY --chown=1000:100 replicas replicas
COPY --chown=1000:100 serve_app serve_app
COPY --chown=1000:100 simulator simulator
COPY --chown=1000:100 configs configs

# --no-deps: everything it needs is in the image, in the versions Ray was tested with.
RUN pip install --no-cache-dir --no-deps . && brimful check --help > /dev/null \
 && brimful replay --help > /dev/null \
 && test -x /home/ray/anaconda3/bin/brimful-haproxy \
 && "$(python -c 'from serve_app.haproxy import haproxy_binary; print(haproxy_binary())')" -v

# A folder on a mounted volume takes the place of /models, see k8s/base.
USER root
RUN install -d -o 1000 -g 100 /models
USER 1000
WORKDIR /home/ray
