# SPDX-License-Identifier: Apache-2.0
"""The cluster's name server: CoreDNS on the bridge, for Services and pods and for nothing else."""
import os

import network

# No cache and no lifetime: a name that was asked for too early would stay unknown for a while. The
# template, which knows no name, is a server of its own: beside `kubernetes` it would come first.
COREFILE = """\
cluster.local:53 in-addr.arpa:53 {{
    bind {address}
    errors
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
        ttl 0
    }}
}}
.:53 {{
    bind {address}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def start(processes, program, folder, kubeconfig):
    path = os.path.join(folder, "Corefile")
    with open(path, "w", encoding="utf-8") as file:
        file.write(COREFILE.format(address=network.GATEWAY, kubeconfig=kubeconfig))
    processes.start("coredns", [program, "-conf", path])
