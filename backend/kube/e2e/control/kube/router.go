package main

import (
	"context"
	"errors"
	"os/signal"
	"sync"
	"syscall"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"github.com/cloudnativelabs/kube-router/v2/pkg/svcip"
	"github.com/spf13/cobra"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// policyCommand is kube-router with its controller of network policies alone: its own main package also
// has the routers and balancers of clouds, which take minutes to compile.
func policyCommand() *cobra.Command {
	config := options.NewKubeRouterConfig()
	cmd := &cobra.Command{
		Use:  "kube-router",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return enforcePolicies(config) },
	}
	config.AddFlags(cmd.Flags())
	return cmd
}

// enforcePolicies writes packet filters for the pods of this node until a signal ends it.
func enforcePolicies(config *options.KubeRouterConfig) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	rest, err := clientcmd.BuildConfigFromFlags(config.Master, config.Kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	namespaces := factory.Core().V1().Namespaces().Informer()
	policies := factory.Networking().V1().NetworkPolicies().Informer()
	factory.Start(ctx.Done())
	for _, ok := range factory.WaitForCacheSync(ctx.Done()) {
		if !ok {
			return errors.New("the API server's objects could not be read")
		}
	}
	addresses, err := svcip.NewValidator(svcip.Config{
		ClusterIPCIDRs: config.ClusterIPCIDRs,
		EnableIPv4:     config.EnableIPv4,
		EnableIPv6:     config.EnableIPv6,
	})
	if err != nil {
		return err
	}
	tables, sets, err := netpol.NewIPTablesHandlers(config)
	if err != nil {
		return err
	}
	var mutex sync.Mutex
	controller, err := netpol.NewNetworkPolicyController(client, config, pods, policies, namespaces, &mutex, nil, tables, sets, addresses)
	if err != nil {
		return err
	}
	if _, err := pods.AddEventHandler(controller.PodEventHandler); err != nil {
		return err
	}
	if _, err := namespaces.AddEventHandler(controller.NamespaceEventHandler); err != nil {
		return err
	}
	if _, err := policies.AddEventHandler(controller.NetworkPolicyEventHandler); err != nil {
		return err
	}
	beats := make(chan *healthcheck.ControllerHeartbeat)
	go func() {
		for range beats { // discard the heartbeats: this program has no health check
		}
	}()
	var running sync.WaitGroup
	running.Add(1)
	controller.Run(beats, ctx.Done(), &running)
	return nil
}
