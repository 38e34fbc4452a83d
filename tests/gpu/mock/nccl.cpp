// A libnccl without a card, for tests: calls of several communicators on the streams of the mock libcuda, each done once it is at the
// head of its stream on all members.
//
// MOCK_NCCL_VERSION  its version as NCCL counts, 22803 for 2.28.3 where unset
// MOCK_NCCL_FAIL     the number of the call that is never done, and for which its communicator has an error
// MOCK_NCCL_ABSENT   a member number whose communicators never come together with the others
// MOCK_NCCL_FOLDER   a folder of files by which members in several processes meet and send; without it they are threads of one
// MOCK_NCCL_CALLS    a file that gets a line with counts when the library is closed
//
// What the library forbids is an error here: communicators that block, another card's context, memory that no card has, parts of a call
// that overlap, members whose calls differ, two members on a card, a communicator that is left with work to do.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace {

// `ncclResult_t`.
enum Result { SUCCESS = 0, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE_ERROR = 6, IN_PROGRESS = 7 };
constexpr int UINT8 = 1;
constexpr unsigned MAGIC = 0xcafebeef;

struct UniqueId {
  char internal[128];
};
// `ncclConfig_t` of 2.18.
struct Config {
  size_t size;
  unsigned magic, version;
  int blocking, cga_cluster_size, min_ctas, max_ctas;
  const char* net_name;
  int split_share;
};

// What the mock libcuda offers.
struct Driver {
  int (*device)();
  int (*holds)(uintptr_t, size_t);
  int (*meet)(void*, int (*)(void*), void* (*)(void*), void*);
  void (*locked)(void (*)(void*), void*);
};
const Driver* driver() {
  static const Driver found = [] {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!library) return Driver{};
    return Driver{(int (*)())dlsym(library, "mock_cuda_device"), (int (*)(uintptr_t, size_t))dlsym(library, "mock_cuda_holds"),
                  (int (*)(void*, int (*)(void*), void* (*)(void*), void*))dlsym(library, "mock_cuda_meet"),
                  (void (*)(void (*)(void*), void*))dlsym(library, "mock_cuda_locked")};
  }();
  return found.device && found.holds && found.meet && found.locked ? &found : nullptr;
}
// Runs `body` while no work of a stream runs.
template <class F>
void locked(F body) {
  driver()->locked([](void* of) { (*(F*)of)(); }, &body);
}

enum Kind { SEND, RECEIVE, ALL_GATHER, BROADCAST };
struct Op {
  Kind kind;
  const char* from;
  char* to;
  size_t bytes;
  // The other member, or the root.
  int peer;
};
struct Comm;
// What a member puts on a stream at once.
struct Posted {
  Comm* comm;
  uint64_t round;
  std::vector<Op> ops;
  void* stream;
  bool came = false, fails = false;
};
struct Clique {
  size_t size;
  std::string id;
  std::vector<Comm*> members;
  // The posts of each round by member.
  std::map<uint64_t, std::vector<Posted*>> rounds;
  std::map<uint64_t, bool> done;
};
struct Comm {
  std::shared_ptr<Clique> clique;
  int member, device;
  bool aborted = false;
  Result state = IN_PROGRESS;
  // Calls that are not on their stream yet, and how often was asked since.
  std::deque<Posted*> pending;
  int asked = 0;
  uint64_t rounds = 0, unfinished = 0;
};
struct Counts {
  uint64_t joined = 0, left = 0, aborted = 0, calls = 0, bytes = 0;
};
struct Mock {
  std::map<std::string, std::shared_ptr<Clique>> cliques;
  std::string last_words;
  Counts counts;
  uint64_t ids = 0;
};
Mock& mock() {
  static Mock* the_mock = new Mock;
  return *the_mock;
}
size_t number(const char* name, const char* otherwise) {
  const char* value = getenv(name);
  return strtoull(value && *value ? value : otherwise, nullptr, 10);
}
struct Report {
  ~Report() {
    const char* path = getenv("MOCK_NCCL_CALLS");
    if (!path) return;
    if (FILE* file = fopen(path, "a")) {
      Counts& c = mock().counts;
      fprintf(file, "{\"joined\": %lu, \"left\": %lu, \"aborted\": %lu, \"calls\": %lu, \"bytes\": %lu}\n", c.joined, c.left, c.aborted,
              c.calls, c.bytes);
      fclose(file);
    }
  }
} report_at_end;

Result refused(Result code, const std::string& why) { return mock().last_words = why, code; }

// The bytes that member `to` gets of member `from` by their sends and receives, in their order.
bool move(std::vector<Posted*>& all) {
  size_t size = all.size();
  struct Write {
    char* to;
    std::vector<char> bytes;
  };
  std::vector<Write> writes;
  auto write = [&](char* to, const char* from, size_t bytes) {
    // A member of another process writes by itself.
    if (!to || to == from) return;
    writes.push_back({to, std::vector<char>(from, from + bytes)});
    mock().counts.bytes += bytes;
  };
  std::vector<std::vector<std::deque<Op>>> sent(size, std::vector<std::deque<Op>>(size));
  for (size_t m = 0; m < size; m++)
    for (Op& op : all[m]->ops)
      if (op.kind == SEND) sent[m][size_t(op.peer)].push_back(op);
  for (size_t m = 0; m < size; m++)
    for (size_t i = 0; i < all[m]->ops.size(); i++) {
      Op& op = all[m]->ops[i];
      if (op.kind == SEND) continue;
      if (op.kind == RECEIVE) {
        auto& of = sent[size_t(op.peer)][m];
        if (of.empty() || of.front().bytes != op.bytes) return false;
        write(op.to, of.front().from, op.bytes);
        of.pop_front();
        continue;
      }
      for (size_t from = 0; from < size; from++) {
        if (all[from]->ops.size() <= i) return false;
        Op& other = all[from]->ops[i];
        if (other.kind != op.kind || other.bytes != op.bytes || other.peer != op.peer) return false;
        if (op.kind == ALL_GATHER) write(op.to ? op.to + from * op.bytes : nullptr, other.from, op.bytes);
        if (op.kind == BROADCAST && int(from) == op.peer) write(op.to, other.from, op.bytes);
      }
    }
  for (auto& row : sent)
    for (auto& left : row)
      if (!left.empty()) return false;
  for (Write& each : writes) memcpy(each.to, each.bytes.data(), each.bytes.size());
  return true;
}

// The file of a member in the folder of MOCK_NCCL_FOLDER: that it joined, or what it sends in a round.
std::string file_of(const Clique& clique, size_t member, const std::string& what) {
  return std::string(getenv("MOCK_NCCL_FOLDER")) + "/" + clique.id + "." + what + "." + std::to_string(member);
}
bool in_files() { return getenv("MOCK_NCCL_FOLDER"); }
// A file is there whole or not at all.
void leave(const std::string& path, const std::string& content) {
  std::ofstream(path + ".part", std::ios::binary) << content;
  if (rename((path + ".part").c_str(), path.c_str())) perror(path.c_str()), abort();
}
bool take(const std::string& path, std::string& content) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return false;
  std::ostringstream all;
  all << file.rdbuf();
  return content = all.str(), true;
}

// What a member sends, as others read it: each call's operation, followed by its bytes.
std::string letter(const Posted& posted) {
  std::string text;
  for (Op op : posted.ops) {
    bool sends = op.from && (op.kind != BROADCAST || op.peer == posted.comm->member);
    op.to = nullptr;
    text.append((const char*)&op, sizeof op);
    if (sends) text.append(op.from, op.bytes);
    if (!sends && op.kind != RECEIVE) text.append(op.bytes, 0);
  }
  return text;
}
std::vector<Op> opened(const std::string& letter) {
  std::vector<Op> ops;
  for (size_t at = 0; at < letter.size();) {
    Op op;
    memcpy(&op, letter.data() + at, sizeof op);
    at += sizeof op;
    op.from = op.kind == RECEIVE ? nullptr : letter.data() + at;
    if (op.from) at += op.bytes;
    ops.push_back(op);
  }
  return ops;
}

// A call whose members are in several processes. The file of a round stays until its writer has seen the next round of all.
int come_by_files(Posted& posted) {
  Comm& comm = *posted.comm;
  Clique& clique = *comm.clique;
  auto round = [&](uint64_t number) { return "round-" + std::to_string(number); };
  if (!posted.came) leave(file_of(clique, size_t(comm.member), round(posted.round)), letter(posted));
  posted.came = true;
  std::vector<std::string> letters(clique.size);
  std::vector<Posted> others(clique.size);
  std::vector<Posted*> all(clique.size, &posted);
  for (size_t m = 0; m < clique.size; m++) {
    if (m == size_t(comm.member)) continue;
    if (!take(file_of(clique, m, round(posted.round)), letters[m])) return 0;
    others[m].ops = opened(letters[m]);
    all[m] = &others[m];
  }
  if (!move(all)) {
    mock().last_words = "members make different calls";
    comm.state = INVALID_USAGE;
    return 0;
  }
  if (posted.round) unlink(file_of(clique, size_t(comm.member), round(posted.round - 1)).c_str());
  comm.unfinished--;
  return 1;
}

// A call at the head of its stream.
int come(void* of) {
  Posted& posted = *(Posted*)of;
  Comm& comm = *posted.comm;
  Clique& clique = *comm.clique;
  if (comm.aborted) {
    // Its kernel ends; what it received so far is anything.
    for (Op& op : posted.ops)
      if (op.to) memset(op.to, 0xff, op.bytes);
    return 1;
  }
  if (posted.fails) {
    comm.state = REMOTE_ERROR;
    mock().last_words = "MOCK_NCCL_FAIL asks for it";
  }
  if (comm.state != SUCCESS) return 0;
  if (in_files()) return come_by_files(posted);
  posted.came = true;
  if (clique.done[posted.round]) return comm.unfinished--, 1;
  auto& all = clique.rounds[posted.round];
  for (Posted* each : all)
    if (!each || !each->came || each->comm->aborted) return 0;
  if (!move(all)) {
    mock().last_words = "members make different calls";
    for (Comm* each : clique.members) each->state = INVALID_USAGE;
    return 0;
  }
  clique.done[posted.round] = true;
  comm.unfinished--;
  return 1;
}
void* missing(void* of) {
  Posted& posted = *(Posted*)of;
  if (in_files()) return nullptr;
  for (Posted* each : posted.comm->clique->rounds[posted.round])
    if (each && !each->came && !each->comm->aborted) return each->stream;
  return nullptr;
}

// Puts what waits for it on its stream. The caller holds the lock.
void put(Comm& comm) {
  while (!comm.pending.empty()) {
    Posted* posted = comm.pending.front();
    comm.pending.pop_front();
    auto& all = comm.clique->rounds[posted->round];
    all.resize(comm.clique->size);
    all[size_t(comm.member)] = posted;
    comm.unfinished++;
    posted->fails = ++mock().counts.calls == number("MOCK_NCCL_FAIL", "0");
    if (!driver()->meet(posted->stream, come, missing, posted)) comm.state = INVALID_ARGUMENT;
  }
}

// The calls of this thread between begin and end.
thread_local int depth = 0;
thread_local Posted* group = nullptr;

// The cards of the members that joined so far.
std::map<int, std::string> members_of(const Clique& clique) {
  std::map<int, std::string> cards;
  for (Comm* each : clique.members) cards[each->member] = std::to_string(each->device);
  for (size_t m = 0; in_files() && m < clique.size; m++) {
    std::string card;
    if (take(file_of(clique, m, "joined"), card)) cards[int(m)] = card;
  }
  return cards;
}

bool overlap(const char* a, size_t bytes_a, const char* b, size_t bytes_b) { return a < b + bytes_b && b < a + bytes_a; }

Result put_op(Comm* comm, void* stream, Op op, size_t received) {
  if (!depth) return refused(INVALID_USAGE, "a call outside of a group");
  if (driver()->device() != comm->device) return refused(INVALID_USAGE, "the context of another card is current");
  if (!stream) return refused(INVALID_USAGE, "the default stream");
  if (op.from && !driver()->holds((uintptr_t)op.from, op.bytes)) return refused(INVALID_ARGUMENT, "sent memory that no card has");
  if (op.to && !driver()->holds((uintptr_t)op.to, received)) return refused(INVALID_ARGUMENT, "received memory that no card has");
  if (op.peer < 0 || op.peer >= int(comm->clique->size)) return refused(INVALID_ARGUMENT, "no such member");
  if (!group) group = new Posted{comm, 0, {}, stream};
  if (group->comm != comm || group->stream != stream) return refused(INVALID_USAGE, "calls of several communicators or streams");
  for (Op& other : group->ops) {
    bool crosses = (op.to && other.from && overlap(op.to, op.bytes, other.from, other.bytes)) ||
                   (op.to && other.to && overlap(op.to, op.bytes, other.to, other.bytes)) ||
                   (op.from && other.to && overlap(op.from, op.bytes, other.to, other.bytes));
    if (crosses) return refused(INVALID_USAGE, "parts of a call overlap");
  }
  group->ops.push_back(op);
  return SUCCESS;
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) { return *version = int(number("MOCK_NCCL_VERSION", "22803")), SUCCESS; }
const char* ncclGetErrorString(int code) {
  switch (code) {
    case SUCCESS: return "no error";
    case INVALID_ARGUMENT: return "invalid argument";
    case INVALID_USAGE: return "invalid usage";
    case REMOTE_ERROR: return "remote process exited or there was a network error";
    case IN_PROGRESS: return "NCCL operation in progress";
    default: return "unknown result code";
  }
}
const char* ncclGetLastError(Comm*) { return mock().last_words.c_str(); }

int ncclGetUniqueId(UniqueId* id) {
  memset(id, 0, sizeof *id);
  snprintf(id->internal, sizeof id->internal, "mock-%d-%lu", getpid(), (unsigned long)__atomic_add_fetch(&mock().ids, 1, __ATOMIC_SEQ_CST));
  return SUCCESS;
}

int ncclCommInitRankConfig(Comm** made, int size, UniqueId id, int member, Config* config) {
  if (config->size != sizeof(Config) || config->magic != MAGIC || config->version != 21800) return refused(INVALID_ARGUMENT, "config");
  if (config->blocking != 0) return refused(INVALID_ARGUMENT, "a communicator that blocks");
  if (!driver() || driver()->device() < 0) return refused(INVALID_USAGE, "no context");
  Comm* comm = new Comm;
  comm->member = member;
  comm->device = driver()->device();
  locked([&] {
    auto& clique = mock().cliques[std::string(id.internal, sizeof id.internal)];
    if (!clique) clique.reset(new Clique{size_t(size), id.internal, {}, {}, {}});
    comm->clique = clique;
    bool absent = size_t(member) == number("MOCK_NCCL_ABSENT", "1000000");
    if (!absent) clique->members.push_back(comm);
    if (!absent && in_files()) leave(file_of(*clique, size_t(member), "joined"), std::to_string(comm->device));
    mock().counts.joined++;
  });
  return *made = comm, IN_PROGRESS;
}

int ncclCommGetAsyncError(Comm* comm, int* state) {
  locked([&] {
    std::map<int, std::string> joined = members_of(*comm->clique);
    if (comm->state == IN_PROGRESS && joined.size() == comm->clique->size) {
      comm->state = SUCCESS;
      for (auto& [a, card_of_a] : joined)
        for (auto& [b, card_of_b] : joined)
          if (a < b && card_of_a == card_of_b) {
            comm->state = INVALID_USAGE;
            mock().last_words =
                "Duplicate GPU detected : rank " + std::to_string(a) + " and rank " + std::to_string(b) + " both on CUDA device " + card_of_a;
          }
    }
    *state = comm->state;
    // The first who asks is told that calls are under way.
    if (!comm->pending.empty()) {
      if (comm->asked++) put(*comm);
      *state = comm->asked > 1 ? comm->state : IN_PROGRESS;
    }
  });
  return SUCCESS;
}
int ncclCommAbort(Comm* comm) {
  locked([&] {
    comm->aborted = true;
    mock().counts.aborted++;
  });
  return SUCCESS;
}
int ncclCommDestroy(Comm* comm) {
  locked([&] {
    if (comm->unfinished || !comm->pending.empty()) {
      fprintf(stderr, "mock libnccl: a communicator is left with work to do\n");
      abort();
    }
    mock().counts.left++;
  });
  return SUCCESS;
}

int ncclGroupStart() { return depth++, SUCCESS; }
int ncclGroupEnd() {
  if (--depth || !group) return SUCCESS;
  Posted* posted = group;
  group = nullptr;
  locked([&] {
    posted->round = posted->comm->rounds++;
    posted->comm->pending.push_back(posted);
    posted->comm->asked = 0;
  });
  return IN_PROGRESS;
}

int ncclSend(const char* from, size_t count, int type, int peer, Comm* comm, void* stream) {
  if (type != UINT8) return refused(INVALID_ARGUMENT, "a type that the mock does not move");
  return put_op(comm, stream, Op{SEND, from, nullptr, count, peer}, 0);
}
int ncclRecv(char* to, size_t count, int type, int peer, Comm* comm, void* stream) {
  if (type != UINT8) return refused(INVALID_ARGUMENT, "a type that the mock does not move");
  return put_op(comm, stream, Op{RECEIVE, nullptr, to, count, peer}, count);
}
int ncclAllGather(const char* from, char* to, size_t count, int type, Comm* comm, void* stream) {
  if (type != UINT8) return refused(INVALID_ARGUMENT, "a type that the mock does not move");
  const char* own = to + size_t(comm->member) * count;
  if (from != own && overlap(from, count, to, count * comm->clique->size)) return refused(INVALID_USAGE, "sent bytes lie in others' place");
  return put_op(comm, stream, Op{ALL_GATHER, from, to, count, 0}, count * comm->clique->size);
}
int ncclBroadcast(const char* from, char* to, size_t count, int type, int root, Comm* comm, void* stream) {
  if (type != UINT8) return refused(INVALID_ARGUMENT, "a type that the mock does not move");
  return put_op(comm, stream, Op{BROADCAST, from, to, count, root}, count);
}
}
