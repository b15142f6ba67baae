// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/internal/fair"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
)

// untilDone is a Guard whose steps wait until a context ends.
type untilDone struct{ waits context.Context }

func (g untilDone) LimitWait(context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(g.waits)
}
func (untilDone) WaitForPace(context.Context) error { return nil }
func (untilDone) MaySend(context.Context) error     { return nil }
func (untilDone) LogIntent(*plan.Step, string)      {}

// While all slots that one namespace may have are taken, the steps on its objects wait, as long as what they rest on serves, and are not
// sent then. Those on objects of another namespace are sent meanwhile, though they come last.
func TestABusyNamespaceHoldsUpNoRequestOfAnother(t *testing.T) {
	const busy = 500
	waits, end := context.WithTimeout(t.Context(), 30*time.Second)
	defer end()
	var sent atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: statusMeta(), Status: metav1.StatusSuccess})
		if strings.Contains(r.URL.Path, "/namespaces/other/") {
			sent.Add(1)
		}
	}))
	defer server.Close()
	slots := fair.NewSlots(8, clock.RealClock{})
	for range 4 { // half of them is all that one namespace may have
		slot, err := slots.TakeSlot(waits, types.NamespacedName{Namespace: "busy", Name: "c"})
		if err != nil {
			t.Fatal(err)
		}
		defer slot.GiveBack()
	}
	a, err := New(&rest.Config{Host: server.URL, QPS: -1}, slots)
	if err != nil {
		t.Fatal(err)
	}
	var steps []*plan.Step
	for n := range busy + 3 {
		s := deletion(fmt.Sprint(n))
		if s.Object.Namespace = "busy"; n >= busy {
			s.Object.Namespace = "other"
		}
		steps = append(steps, s)
	}
	answers := make([]Outcome, len(steps))
	var done atomic.Int64
	RunSteps(steps, "", func(i int) {
		answers[i] = a.ExecuteStep(t.Context(), steps[i], "1", false, untilDone{waits})
		if steps[i].Object.Namespace == "other" && done.Add(1) == 3 {
			end() // what the others rest on is too old now
		}
	})
	for i, out := range answers {
		want := life.AnswerUnsent
		if i >= busy {
			want = life.AnswerDone
		}
		if out.Kind != want {
			t.Fatalf("step %d, on an object in namespace %q, came to %+v", i, steps[i].Object.Namespace, out)
		}
	}
	if sent.Load() != 3 {
		t.Errorf("%d requests were sent for the other namespace, want 3", sent.Load())
	}
}
