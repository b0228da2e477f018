# Images of the environments' servers: `make images`, or one of them, such as `make image-echo` (echo-env:latest).
# BASE_IMAGE names another base, such as a mirror's python:3.11-slim; IMAGE_TAG another tag; DOCKER another tool (podman).
DOCKER ?= docker
IMAGE_TAG ?= latest
IMAGES := $(patsubst environments/%_env/server/Dockerfile,%,$(wildcard environments/*_env/server/Dockerfile))
IMAGE_ARGS := $(foreach name,BASE_IMAGE OPENENV_TRL,$(if $($(name)),--build-arg $(name)="$($(name))"))
IMAGE_LABELS = --label org.opencontainers.image.version="$$(sed -n 's/^version = "\(.*\)"/\1/p' environments/$*_env/pyproject.toml)"

.PHONY: images $(addprefix image-,$(IMAGES))
images: $(addprefix image-,$(IMAGES))

$(addprefix image-,$(IMAGES)): image-%:
	$(DOCKER) build --file environments/$*_env/server/Dockerfile $(IMAGE_ARGS) $(IMAGE_LABELS) \
		--tag $(subst _,-,$*)-env:$(IMAGE_TAG) .
