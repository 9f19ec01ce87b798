package kube

import (
	"context"
	"strings"

	authorization "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandboxmcp/sandboxmcp"
)

// right is what the server's account has to be allowed to do. without says what does not work otherwise.
type right struct {
	group, resource, sub string
	verbs                []string
	wide                 bool // in the whole cluster, and not in the namespace alone
	without              string
}

func (r right) name() string {
	if r.sub != "" {
		return r.resource + "/" + r.sub
	}
	return r.resource
}

// rights lists what the configuration needs.
func (b *Backend) rights() []right {
	list := []right{{resource: "pods", verbs: []string{"create", "get", "list", "watch", "delete"}}}
	if b.cfg.connects(b.cluster.inside) == ConnectAPI {
		list = append(list, right{resource: "pods", sub: "proxy", verbs: []string{"create"}})
	}
	if b.cfg.Pool != "" {
		list = append(list,
			right{group: claimGroup.Group, resource: claimKind.Resource, verbs: []string{"create", "list", "watch", "patch", "delete"}},
			right{group: claimGroup.Group, resource: poolKind.Resource, verbs: []string{"get"}},
			right{group: claimGroup.Group, resource: templateKind.Resource, verbs: []string{"get"}})
	}
	if b.cfg.RuntimeClass != "" {
		list = append(list, right{resource: "nodes", verbs: []string{"get"}, wide: true, without: "the tier is L1"})
	}
	return list
}

// checkRights asks the API server for each right.
func (b *Backend) checkRights(ctx context.Context) []sandboxmcp.Check {
	var list []sandboxmcp.Check
	for _, r := range b.rights() {
		c := sandboxmcp.Check{Name: "kube rights: " + r.name(), OK: true, Needed: r.without == "", Detail: strings.Join(r.verbs, ", ")}
		var missing []string
		for _, verb := range r.verbs {
			about := &authorization.ResourceAttributes{Namespace: b.cluster.namespace, Group: r.group, Resource: r.resource, Subresource: r.sub, Verb: verb}
			if r.wide {
				about.Namespace = ""
			}
			review := &authorization.SelfSubjectAccessReview{Spec: authorization.SelfSubjectAccessReviewSpec{ResourceAttributes: about}}
			got, err := b.cluster.api.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err != nil {
				c.OK, c.Detail = false, failure("ask for the rights of the account", err).Error()
				break
			}
			if !got.Status.Allowed {
				missing = append(missing, verb)
			}
		}
		if len(missing) > 0 {
			c.OK, c.Detail = false, "the account may not "+strings.Join(missing, ", ")
			if r.without != "" {
				c.Detail += "; " + r.without
			}
		}
		if !c.OK {
			c.Fix = "give the server's account the rights of docs/kubernetes.md, as the chart does"
		}
		list = append(list, c)
	}
	return list
}
