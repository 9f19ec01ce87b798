// Package kube is the backend of a Kubernetes cluster. A sandbox is a pod, whose first process becomes the
// relay of package relay once a server has proved that it may use the pod (package agent). The server
// reaches the pod at its address, or through the API server.
//
// # Pods
//
// Pods come from a warm pool of agent-sandbox where the cluster has it and a setting names the pool, and
// are made one by one elsewhere (provider). A pod serves one sandbox and one connection, and ends with
// it. The cluster may replace a pod by another of the same name: a sandbox is bound to the pod's UID, and
// is lost with it.
//
// # Network
//
// A pod has a network interface. A NetworkPolicy closes it, and a canary shows that it is closed: a pod must
// fail to connect to addresses that the server itself reaches. Without that, the sandbox has no wall of
// the network, and is refused unless the caller accepts tier L0. Open domains never open the pod's network: the
// relay accepts connections in the pod, and the server's gateway judges and dials, as in every container.
//
// # Ends
//
// If the server ends, the connection breaks, the relay exits, and the pod ends. If the pod ends, the
// sandbox is lost. Deadlines end what neither of these does (activeDeadlineSeconds, shutdownTime).
package kube
