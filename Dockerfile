# Nothing but the program: the root certificates of public authorities are compiled in. No base image is pulled, and nothing is
# compiled here: `make docker-build` builds the program as `make image` does, and hands this its folder.
FROM scratch
COPY manager /manager
USER 65532:65532
ENTRYPOINT ["/manager"]
