# Leads while it holds a lock. Its last write is made when the pod is already ending, and is not lost:
# the sidecar ends after it.
set -eu
api=$FENCEPOST_URL/v1
ending=no
trap 'ending=yes' TERM

# Waits for its turn, a little at a time, so that it notices when it is to end.
token=
while [ -z "$token" ]; do
    [ $ending = no ] || exit 0
    token=$(curl -fs "$api/locks/$LOCK" --json '{"ttl_ms":15000,"wait_ms":2000}' | sed 's/.*"token":\([0-9]*\).*/\1/')
done
echo "leading, with token $token"

# The token keeps out whoever led before. The seq makes a write safe to repeat.
seq=0
write() {
    seq=$((seq + 1))
    curl -fsS --retry 5 -X PUT "$api/resources/$LOCK" -o /dev/null \
        -H "X-Fencing-Token: $token" -H "X-Fencing-Seq: $seq" --data-binary "$1"
}

# If the lock is lost, renewing and writing fail, and so does this program: it is started again.
while [ $ending = no ]; do
    curl -fsS -X PUT "$api/locks/$LOCK" -o /dev/null -H "X-Fencing-Token: $token"
    write "working"
    sleep 1
done

echo "ending: one more thing to write"
sleep 2
write "handed over"
curl -fsS -X DELETE "$api/locks/$LOCK" -H "X-Fencing-Token: $token"
echo "handed over after $seq writes"
