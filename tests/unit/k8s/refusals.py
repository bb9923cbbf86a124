"""Faults that an API server or ``ray start`` would refuse, and what parts pods from each other."""

from tests.unit.k8s.faults import GROUP, WORKER, Case

REFUSED = [
    Case(
        "one-model",
        ("apiVersion",),
        "apiVersion: 'policy/v1beta1' is not allowed: must be 'policy/v1'",
        "policy/v1beta1",
        kind="PodDisruptionBudget",
        name="brimful-workers",
    ),
    Case(
        "one-model",
        (*WORKER, "containers", 0, "resources", "requests", "memory"),
        "spec.rayClusterConfig.workerGroupSpecs[0].template.spec.containers[0].resources.requests"
        ".memory: '200Gi' is not allowed: the limit is 96Gi, and Kubernetes takes no more",
        "200Gi",
    ),
    Case(
        "one-model",
        (*WORKER, "tolerations", 0, "effect"),
        "spec.rayClusterConfig.workerGroupSpecs[0].template.spec.tolerations[0].effect: 'NoSched'"
        " is not allowed: must be one of NoSchedule, PreferNoSchedule, NoExecute",
        "NoSched",
    ),
    Case(
        "one-model",
        (*WORKER, "containers", 0, "imagePullPolicy"),
        "spec.rayClusterConfig.workerGroupSpecs[0].template.spec.containers[0].imagePullPolicy:"
        " 'always' is not allowed: must be one of Always, IfNotPresent, Never",
        "always",
    ),
    Case(
        "one-model",
        (*GROUP, "rayStartParams"),
        "spec.rayClusterConfig.workerGroupSpecs[0].rayStartParams: unknown key 'num-cpu'; did you"
        " mean 'num-cpus'?",
        {"num-cpu": "4"},
    ),
    Case(
        "one-model",
        (*GROUP, "rayStartParams"),
        "spec.rayClusterConfig.workerGroupSpecs[0].rayStartParams.num-gpus: '4' is not allowed:"
        " Ray's container has 1 by its limit of nvidia.com/gpu",
        {"num-gpus": "4"},
    ),
    Case(
        "one-model",
        ("spec", "policyTypes"),
        "spec.egress: lets nothing out: Ray's pods would find neither names nor the head",
        ["Ingress", "Egress"],
        kind="NetworkPolicy",
    ),
    Case(
        "one-model",
        ("spec", "ingress", 0, "from", 0, "podSelector", "matchLabels"),
        "spec.ingress: keeps headGroupSpec from headGroupSpec; a rule without ports has to let"
        " Ray's own pods in",
        {"app": "brimful"},
        kind="NetworkPolicy",
    ),
    Case(
        "ha",
        ("spec", "ports", 0, "targetPort"),
        "spec.ports[0].targetPort: 'rediss' is not allowed: the pods have ports of the names redis",
        "rediss",
        kind="Service",
    ),
    Case(
        "ha",
        ("spec", "selector"),
        "spec.selector: chooses no pod of this manifest (app=redis)",
        {"app": "redis"},
        kind="Service",
    ),
    Case(
        "ha",
        ("spec", "selector", "matchLabels"),
        "spec.selector.matchLabels.app.kubernetes.io/name: 'redis' is not allowed:"
        " spec.template.metadata.labels has 'brimful-redis'",
        {"app.kubernetes.io/name": "redis"},
        kind="StatefulSet",
    ),
]
