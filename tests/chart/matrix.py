"""The values that everything is rendered with: each switch at least once in each of its places."""

ETCD = {
    "authority": "etcds://etcd-0.etcd:2379,etcd-1.etcd:2379",
    "etcd": {
        "prefix": "apps/fencepost", "user": "app",
        "passwordSecretName": "etcd-password", "tlsSecretName": "etcd-tls",
    },
}

# For the chart by itself and, below `fencepost`, for the sidecar of another one.
BOTH = {
    "defaults": {},
    "etcd with everything": ETCD,
    "etcd with only a CA": {
        "authority": "etcd://etcd:2379",
        "etcd": {"tlsSecretName": "etcd-ca", "clientCertificate": False},
    },
    "no authority": {"authority": "none"},
    "postgres over TLS": {"store": {"secretName": "db.app", "secretKey": "uri", "tlsSecretName": "db-tls"}},
    "the address from the environment": {
        "store": {"secretName": ""},
        "extraEnv": [
            {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "db", "key": "password"}}},
            {"name": "FENCEPOST_STORE", "value": "postgres://app:$(PASSWORD)@db/app"},
        ],
    },
    "settings": {"settings": {
        "max-body": "4MiB", "queue": 1000000, "log": "info,fencepost=debug",
        "trust": "granted", "rule": "above", "log-format": "json",
    }},
    "an image of one's own": {
        "image": {"repository": "registry.example:5000/infra/fencepost", "tag": "1.2.3-rc.1_x", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "registry"}],
    },
    "a digest and a registry for all": {
        "image": {"digest": "sha256:" + "0123456789abcdef" * 4}, "global": {"imageRegistry": "mirror.example"},
    },
    "the platform chooses the user": {"runAsUser": "", "runAsGroup": ""},
    "IPv6": {"ipv6": True},
    "a long drain": {"drainSeconds": 600},
    "resources": {"resources": {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}},
    "volumes": {
        "extraVolumes": [{"name": "more", "configMap": {"name": "ca"}}],
        "extraVolumeMounts": [{"name": "more", "mountPath": "/etc/more", "readOnly": True}],
    },
}

SIDECAR = {
    "a plain container": {"sidecar": {"native": False}},
    "a plain container that does not wait": {"sidecar": {"native": False, "preStopSeconds": 0}},
    "a pod that is ready without the store": {"sidecar": {"readiness": False, "startupSeconds": 30}},
    "a slow application": {"sidecar": {"applicationGraceSeconds": 300}},
    "a shared proxy as well": {"shared": {"enabled": True}, "insecure": True},
    "monitoring": {
        "podMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}, "dashboard": {"enabled": True},
    },
}

EVERYTHING = {
    "migration": {"enabled": True},
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}, "interval": "15s"},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    "dashboard": {"enabled": True, "annotations": {"grafana_folder": "Storage"}},
    "networkPolicy": {
        "enabled": True,
        "clients": [{"podSelector": {"matchLabels": {"app": "orders"}}}],
        "metrics": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"port": 5432, "protocol": "TCP"}]}],
    },
    "serviceAccount": {"create": True, "annotations": {"example.com/role": "db"}},
    "shared": {
        "replicas": 3,
        "service": {"type": "LoadBalancer", "port": 80, "annotations": {"a": "b"}},
        "podDisruptionBudget": {"maxUnavailable": "25%"},
        "podLabels": {"team": "storage"}, "podAnnotations": {"a": "b"},
        "nodeSelector": {"disk": "fast"}, "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        "topologySpreadConstraints": [
            {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
        ],
        "priorityClassName": "high",
    },
}

# Nobody gets in without proving who they are.
GUARDED = {
    "insecure": False,
    "tls": {"secretName": "proxy-tls"},
    "auth": {"tokensSecretName": "proxy-tokens"},
}

SHARED = {
    "guarded, by tokens": GUARDED,
    "guarded, and tested": {**GUARDED, "test": {"bearerSecretName": "test-token"}},
    "guarded, by everything": {
        "insecure": False,
        "tls": {"secretName": "proxy-tls", "clientCertificates": True},
        "auth": {
            "tokensSecretName": "proxy-tokens", "tokensSecretKey": "lines",
            "policyConfigMapName": "proxy-policy", "policyKey": "rules.toml",
            "serviceAccounts": {"issuer": "https://kubernetes.default.svc.cluster.local", "audience": "shop"},
        },
    },
    "guarded, by certificates alone": {"insecure": False, "tls": {"secretName": "proxy-tls", "clientCertificates": True}},
    "everything": EVERYTHING,
    "everything, on etcd": {**EVERYTHING, **ETCD, "store": {"tlsSecretName": "db-tls"}},
    "only the monitoring": {"shared": {"enabled": False}, "podMonitor": {"enabled": True}},
    "nobody may reach it": {"networkPolicy": {"enabled": True, "clients": []}},
    "an account that exists": {"serviceAccount": {"name": "app"}, "migration": {"enabled": True}},
    "no extras": {"shared": {"preStopSeconds": 0, "podDisruptionBudget": {"enabled": False}}, "test": {"enabled": False}},
    "long names": {"nameOverride": "a" * 63, "fullnameOverride": "b" * 63, "migration": {"enabled": True}},
}

# (values, a word of the reason)
REFUSED = {
    "an unknown value": ({"replicas": 3}, "replicas"),
    "an unknown value further down": ({"store": {"url": "postgres://db"}}, "url"),
    "an unknown setting": ({"settings": {"max-bodys": 1}}, "settings"),
    "a setting that is a secret": ({"settings": {"etcd-password": "x"}}, "settings"),
    "a setting that the chart decides": ({"settings": {"listen": "0.0.0.0:7420"}}, "settings"),
    "a list as a setting": ({"settings": {"queue": [1]}}, "queue"),
    "a password in the authority": ({"authority": "etcd://app:secret@etcd:2379"}, "authority"),
    "an authority that there is not": ({"authority": "zookeeper://zk:2181"}, "authority"),
    "an etcd without a port": ({"authority": "etcd://etcd"}, "authority"),
    "root": ({"runAsUser": 0}, "runAsUser"),
    "a user by name": ({"runAsUser": "fencepost"}, "runAsUser"),
    "a drain with a unit": ({"drainSeconds": "10s"}, "drainSeconds"),
    "no drain": ({"drainSeconds": 0}, "drainSeconds"),
    "a digest that is none": ({"image": {"digest": "sha256:abc"}}, "digest"),
    "an image with a tag in its name": ({"image": {"tag": "a:b"}}, "tag"),
    "a pull policy that there is not": ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
    "a secret with a name that there cannot be": ({"store": {"secretName": "My_Secret"}}, "secretName"),
    "words for a switch": ({"sidecar": {"native": "yes please"}}, "native"),
    "a port that there is not": ({"shared": {"service": {"port": 70000}}}, "port"),
    "a shared proxy that is open to all": ({"shared": {"enabled": True}, "insecure": False}, "insecure=true"),
    "tokens in the clear": ({"shared": {"enabled": True}, "insecure": False, "auth": {"tokensSecretName": "t"}}, "tls.secretName"),
    "TLS for everybody": ({"shared": {"enabled": True}, "insecure": False, "tls": {"secretName": "t"}}, "auth.tokensSecretName"),
    "an issuer without TLS": ({"auth": {"serviceAccounts": {"issuer": "http://a"}}}, "issuer"),
    "a setting of access by name": ({"settings": {"tokens-file": "/t"}}, "settings"),
    "no database": ({"store": {"secretName": ""}, "shared": {"enabled": True}}, "where is the database"),
}
