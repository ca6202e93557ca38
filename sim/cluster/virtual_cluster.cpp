#include "sim/cluster/virtual_cluster.h"

#include <algorithm>
#include <utility>

#include "actors/client_routes.h"
#include "actors/coordinator/memory.h"
#include "actors/node/descriptors.h"
#include "base/rank_names.h"
#include "base/visit.h"
#include "sim/basics/integer_math.h"
#include "sim/bytes/virtual_host.h"

namespace shoal::sim {

namespace {

constexpr uint32_t kEpoch = 1;
constexpr const char* kJob = "simulated";
constexpr size_t kMaxWarnings = 20;
constexpr size_t kFetchedRoleBytes = 256;  // the bytes of a role that most events read

// A number for the content of an event, detailed enough that two different runs have different trace hashes.
uint64_t detail_of(const actors::Event& event) {
  return std::visit(
      base::Overloaded{
          [](const actors::event::Received& e) { return e.from << 8 | e.message.body->index(); },
          [](const actors::event::FromClient& e) { return e.client << 8 | e.message->index(); },
          [](const actors::event::TimerFired& e) { return e.timer; },
          [](const actors::event::OperationDone& e) { return e.operation << 1 | (e.result.ok() ? 1 : 0); },
          [](const actors::event::SendDone& e) { return e.send; },
          // The kind of these, which the caller adds, is enough.
          [](const base::OneOf<
              actors::event::Started, actors::event::ClientLost, actors::event::WorldKnown,
              actors::event::PlanningFailed, actors::event::PeerUp, actors::event::CoordinatorSuperseded,
              actors::event::PeerLost, actors::event::TrainerEnded, actors::event::NextRunStarts,
              actors::event::Stopping, actors::event::Drain, actors::event::RanksLost> auto&) {
            return uint64_t{0};
          }},
      event);
}

// The message as its receiver decodes it. An error if the codec loses something.
Result<actors::WireMessage> through_codec(const actors::WireMessage& message) {
  const Bytes encoded = actors::encode_wire(message);
  SHOAL_ASSIGN_OR_RETURN(actors::WireMessage decoded, actors::decode_wire(encoded));
  if (actors::encode_wire(decoded) == encoded) return decoded;
  return Status(Code::internal, "it is another message when it is decoded");
}
Result<local::LocalMessage> through_codec(const local::LocalMessage& message) {
  return local::decode_local(local::encode_local(message));
}

}  // namespace

VirtualCluster::VirtualCluster(EventHeap& events, const Profile& profile, uint64_t seed, Job job)
    : events_(events),
      plans_(job.root ? job.root->plans() : std::make_shared<SharedPlans>()),
      profile_(profile),
      network_(events, profile.network, job.ranks_of_node.size()),
      relays_(events, network_, profile.cpu, job.ranks_of_node.size(), job.max_direct_nodes),
      storage_(events, profile.storage, job.ranks_of_node.size(), stream_seed(seed, Stream::storage)),
      hazards_(stream_seed(seed, Stream::hazards)),
      cpu_(profile.cpu, job.mode != SaveMode::collective, profile.trainer.copy_bytes_per_s),
      cores_(profile.cpu.shared_cores),
      items_(profile.items),
      root_(job.root ? job.root
                     : std::make_shared<CountedRoot>(
                           events, profile.storage, profile.cpu.codec_bytes_per_s,
                           storage::EpochRecord{kEpoch, "node0", kJob, Nonce{}, job.generation}, plans_)),
      job_(std::move(job)),
      nodes_(job_.ranks_of_node.size()) {
  if (job_.root && !job_.read_only) epoch_ = root_->claim_epoch(job_.generation, "node0");
  if (job_.parts_slab_bytes != 0) {
    part_writes_.emplace(
        events_, job_.parts_slab_bytes,
        [this](actors::ClientId client, local::PartRequest wanted) {
          to_client(client, std::make_shared<const local::LocalMessage>(std::move(wanted)));
        },
        [this](size_t node, std::function<void()> act) { when_it_runs(node, std::move(act)); });
  }
  for (size_t index = 0; index < nodes_.size(); ++index) {
    make_roles(index, epoch_, index == 0);
    session_owners_.push_back(static_cast<uint32_t>(index));
    if (index != 0) nodes_[index].session = actors::kFirstPeerNode + index;
  }
}

actors::Timeouts VirtualCluster::timeouts() const {
  actors::Timeouts timeouts = job_.timeouts;
  if (const uint32_t deadline_s = profile_.items.deadline_s; deadline_s != 0) {
    timeouts.attempt_deadline_ms = timeouts.node_deadline_ms = deadline_s * 1000;
  }
  return timeouts;
}

void VirtualCluster::make_roles(size_t index, uint32_t epoch, bool coordinates) {
  actors::NodeConfig config;
  config.read_only = job_.read_only;
  config.generation = job_.generation;
  config.epoch = epoch;
  config.job_id = kJob;
  config.host = "host" + std::to_string(index);
  config.world_size = job_.world_size;
  if (job_.has_launcher) config.expected_ranks = job_.ranks_of_node[index];
  config.plans = plans_;
  config.timeouts = timeouts();
  config.retention = job_.retention;
  Node& node = nodes_[index];
  node.bulk.free = actors::kBulkThreads;
  node.duty.free = actors::kDutyThreads;
  node.background.free = actors::kBackgroundThreads;
  node.epoch = epoch;
  auto add = [&node](std::unique_ptr<actors::Role> role) {
    node.roles[static_cast<size_t>(role->kind())] = std::move(role);
  };
  add(actors::make_planner(config));
  add(actors::make_shard_writer(config));
  add(actors::make_loader(config));
  if (coordinates) add(actors::make_coordinator(config));
}

VirtualCluster::~VirtualCluster() {
  for (const Node& node : nodes_) count_transitions(node);
}

void VirtualCluster::count_transitions(const Node& node) const {
  if (paths_ == nullptr) return;
  for (const std::unique_ptr<actors::Role>& role : node.roles) {
    if (role != nullptr) paths_->ended(*role);
  }
}

void VirtualCluster::record(Trace* trace) {
  trace_ = trace;
  if (trace_ == nullptr) return;
  for (size_t node = 0; node < nodes_.size(); ++node) {
    trace_->name_node(node, base::name_ranks(job_.ranks_of_node[node]));
  }
}

void VirtualCluster::keep_bytes(StoredPayload* payload) {
  payload_ = payload;
  root_->is_stored_too();
  if (!job_.read_only) payload->begin_generation();
  plans_->give_each_rank_its_own();
}

void VirtualCluster::start(ToClient to_client, std::function<const void*(actors::ClientId)> state_of) {
  to_client_ = std::move(to_client);
  state_of_client_ = std::move(state_of);
  for (size_t node = 0; node < nodes_.size(); ++node) begin_roles(node);
}

void VirtualCluster::begin_roles(size_t node) {
  if (is_coordinator(node)) offer(node, actors::RoleKind::coordinator, actors::event::Started{});
  offer(node, std::nullopt, actors::event::Started{});
}

// In a run with true bytes, messages pass through their codecs as well.
template <class Message>
Message VirtualCluster::passed(const Message& message) {
  if (payload_ == nullptr || !has_codecs_) return message;
  auto decoded = through_codec(message);
  if (decoded.ok()) return std::move(*decoded);
  payload_->note_undecodable(decoded.status());
  return message;
}

void VirtualCluster::from_client(size_t node, actors::ClientId client, local::LocalMessage message,
                                 actors::TimeNs takes) {
  if (payload_ != nullptr) message = passed(message);
  send_from_client(node, client, std::make_shared<const local::LocalMessage>(std::move(message)), takes);
}

void VirtualCluster::from_client(size_t node, actors::ClientId client,
                                 std::shared_ptr<const local::LocalMessage> message, actors::TimeNs takes) {
  if (payload_ != nullptr) return from_client(node, client, local::LocalMessage(*message), takes);
  send_from_client(node, client, std::move(message), takes);
}

void VirtualCluster::send_from_client(size_t node, actors::ClientId client,
                                      std::shared_ptr<const local::LocalMessage> report,
                                      actors::TimeNs takes) {
  const actors::TimeNs begins_at = takes == 0 ? events_.now() : cores_.end_of(events_.now(), takes);
  events_.schedule(
      begins_at + profile_.cpu.local_latency_ns,
      [this, node, client, report = std::move(report)]() mutable {
        if (part_writes_ && takes_for_parts(node, client, *report)) return;
        offer(node, std::nullopt, actors::event::FromClient{client, std::move(report)});
      },
      &nodes_[node]);
}

bool VirtualCluster::takes_for_parts(size_t node, actors::ClientId client,
                                     const local::LocalMessage& message) {
  if (!nodes_[node].alive) return false;
  if (std::holds_alternative<local::Attach>(message)) part_writes_->client_attached(node, client);
  const auto* part = std::get_if<local::PartStaged>(&message);
  if (part != nullptr) part_writes_->answered(node, client, *part);
  return part != nullptr;
}

void VirtualCluster::when_it_runs(size_t node, std::function<void()> act) {
  if (nodes_[node].stalled_until <= events_.now()) return act();
  events_.schedule(nodes_[node].stalled_until, std::move(act));
}

void VirtualCluster::attach(size_t node, Rank rank, actors::ClientId client) {
  local::Attach attach;
  attach.rank = rank;
  attach.world_size = job_.world_size;
  from_client(node, client, attach);
}

// --- a node's processor ---

void VirtualCluster::add_input(size_t index, Input* input) {
  Node& node = nodes_[index];
  node.wire_bytes += input->wire_bytes;
  node.inputs.push_back(input);
  if (index == coordinator_)
    coordinator_costs_.longest_queue =
        std::max<uint64_t>(coordinator_costs_.longest_queue, node.inputs.size());
  if (!node.busy) begin_next(index);
}

VirtualCluster::Input* VirtualCluster::take_input(Node& node) {
  Input* first = node.inputs.pop_front();
  node.wire_bytes -= first->wire_bytes;
  return first;
}

void VirtualCluster::give_back(Input* input) {
  input->event = actors::event::Started{};
  inputs_.give_back(input);
}

void VirtualCluster::begin_next(size_t index) {
  Node& node = nodes_[index];
  node.busy = !node.inputs.empty();
  if (!node.busy) return;
  const Input& next = *node.inputs.front();
  actors::TimeNs work = cpu_.to_take(next.event, next.wire_bytes);
  if (const auto* received = std::get_if<actors::event::Received>(&next.event)) {
    work += items_.to_take(index, received->message);
  }
  const actors::TimeNs takes = cpu_.on(is_coordinator(index), work);
  if (index == coordinator_) coordinator_costs_.busy_ns += takes;
  events_.schedule(cores_.end_of(std::max(events_.now(), node.stalled_until), takes),
                   HandleNext{this, life_of(index)}, &node);
}

// Its node is already in the cache. Most events go to the ShardWriter.
void VirtualCluster::HandleNext::fetch() const {
  const Node& node = cluster->nodes_[static_cast<uint32_t>(life)];
  fetch_lines(node.inputs.front(), sizeof(Input));
  fetch_lines(node.roles[static_cast<size_t>(actors::RoleKind::shard_writer)].get(), kFetchedRoleBytes);
}

// The effects of a role leave once the processor has finished the event.
void VirtualCluster::handle_next(size_t index) {
  Input* input = take_input(nodes_[index]);
  Answers* answers = answers_.take();
  actors::TimeNs takes = 0;
  if (input->role) {
    deliver(index, *input->role, *input, *answers, &takes);
  } else {
    const auto* from_client = std::get_if<actors::event::FromClient>(&input->event);
    for (actors::RoleKind role :
         {actors::RoleKind::planner, actors::RoleKind::shard_writer, actors::RoleKind::loader}) {
      if (from_client != nullptr && !actors::hears(role, *from_client->message)) continue;
      deliver(index, role, *input, *answers, &takes);
    }
  }
  if (trace_ != nullptr) trace_->handled(index, events_.now(), events_.now() + takes, input->event);
  give_back(input);
  if (index == coordinator_) coordinator_costs_.busy_ns += takes;
  auto go = [this, life = life_of(index), answers] {
    if (lives(life)) leave(static_cast<uint32_t>(life), *answers);
    answers->clear();
    answers_.give_back(answers);
  };
  if (takes == 0) return go();
  events_.schedule(cores_.end_of(events_.now(), takes), std::move(go), answers);
}

void VirtualCluster::leave(size_t index, Answers& answers) {
  size_t next = 0, sends = 0;
  for (const Answers::Answer& answer : answers.of_roles) {
    for (; next < answer.end; ++next) {
      actors::Effect& effect = answers.effects[next];
      const bool is_sent = std::holds_alternative<actors::effect::Send>(effect) ||
                           std::holds_alternative<actors::effect::SendTo>(effect);
      carry_out(index, answer.role, effect, is_sent ? answers.sizes[sends++] : 0);
    }
  }
  begin_next(index);
}

// Frees the memory of an answer of the coordinator to all nodes.
void VirtualCluster::Answers::clear() {
  constexpr size_t kKept = 4;
  of_roles.clear();
  effects.clear();
  sizes.clear();
  if (effects.capacity() > kKept) effects = actors::Effects();
  if (sizes.capacity() > kKept) sizes = {};
}

void VirtualCluster::deliver(size_t index, actors::RoleKind role, const Input& input, Answers& answers,
                             actors::TimeNs* takes) {
  actors::Role* handler = nodes_[index].roles[static_cast<size_t>(role)].get();
  if (handler == nullptr) return;
  note(index, role, input);
  if (event_listener_) event_listener_(index, role, input.event);
  if (paths_ != nullptr) paths_->handled(role, input.event);
  const size_t first = answers.effects.size();
  handler->handle(events_.now(), input.event, answers.effects);
  const std::span<const actors::Effect> effects(answers.effects.data() + first,
                                                answers.effects.size() - first);
  std::vector<uint64_t>& sent = sent_sizes_;
  sent.clear();
  actors::TimeNs work = 0;
  for (const actors::Effect& effect : effects) {
    if (const auto* start = std::get_if<actors::effect::Start>(&effect)) {
      const auto* publish = std::get_if<actors::operation::PublishDecision>(&start->operation);
      if (publish != nullptr) work += items_.to_commit(*publish).takes;
    }
    if (const auto* shared = std::get_if<actors::effect::SendTo>(&effect)) {
      answers.sizes.push_back(sizes_.of(shared->message));
      sent.push_back(answers.sizes.back());
      continue;
    }
    const auto* send = std::get_if<actors::effect::Send>(&effect);
    if (send == nullptr) continue;
    const ItemModel::Extra extra = items_.to_send(send->message);
    work += extra.takes;
    const uint64_t bytes = is_local(index, send->to) ? 0 : sizes_.of(send->message) + extra.bytes;
    answers.sizes.push_back(bytes);
    const uint64_t chunk_bytes = chunk_bytes_of(send->message);
    work += cpu_.to_copy(chunk_bytes);
    if (bytes != 0) sent.push_back(bytes - extra.bytes - chunk_bytes);
  }
  work += cpu_.to_answer(index, role, input.event, effects, sent);
  *takes += cpu_.on(is_coordinator(index), work);
  if (!effects.empty()) answers.of_roles.push_back({role, answers.effects.size()});
}

void VirtualCluster::note(size_t node, actors::RoleKind role, const Input& input) {
  ++delivered_;
  auto mix = [this](uint64_t value) { trace_hash_ = mix64(trace_hash_ ^ value) + 0x9e3779b97f4a7c15; };
  mix(static_cast<uint64_t>(events_.now()));
  mix(uint64_t{node} << 16 | static_cast<uint64_t>(role) << 8 | input.event.index());
  mix(detail_of(input.event));
  mix(input.wire_bytes);
}

uint64_t VirtualCluster::coordinator_peers() const {
  if (coordinator_peers_) return *coordinator_peers_;
  uint64_t peers = 0;
  for (size_t node = 0; node < nodes_.size(); ++node) {
    const bool speaks_by_relay = coordinator_ == 0 && relays_.relay_of(node) != 0;
    peers += nodes_[node].session != 0 && nodes_[node].coordinator == coordinator_ && !speaks_by_relay;
  }
  coordinator_peers_ = peers;
  return peers;
}

CoordinatorLoad VirtualCluster::coordinator_load() const {
  const Node& coordinator_node = nodes_[coordinator_];
  actors::DescriptorDemand demand;
  demand.listens = nodes_.size() > 1;
  demand.trainers = job_.ranks_of_node[coordinator_].size();
  demand.peers = coordinator_peers();
  CoordinatorLoad state{coordinator_node.inputs.size(), coordinator_node.wire_bytes,
                        actors::descriptors_needed(demand)};
  const actors::Role* coordinator =
      coordinator_node.roles[static_cast<size_t>(actors::RoleKind::coordinator)].get();
  if (coordinator != nullptr) state.memory_bytes += actors::coordinator_memory_bytes(*coordinator);
  return state;
}

// --- effects ---

void VirtualCluster::carry_out(size_t index, actors::RoleKind role, actors::Effect& any, uint64_t bytes) {
  std::visit(
      base::Overloaded{
          [&](const actors::effect::Send& effect) { send(index, effect, bytes); },
          [&](const actors::effect::SendTo& effect) {
            const size_t to = std::stoul(effect.address.substr(4));  // after "node"
            send_between(index, to, effect.message, bytes);
          },
          [&](actors::effect::ToRole& effect) { offer(index, effect.to, std::move(effect.event)); },
          [&](actors::effect::ToClient& effect) { to_client(effect.client, std::move(effect.message)); },
          [&](const actors::effect::SetTimer& effect) { set_timer(index, role, effect); },
          [&](const actors::effect::CancelTimer& effect) {
            std::erase_if(nodes_[index].timers, [&](const Timer& timer) {
              return timer.timer == effect.timer && timer.role == role;
            });
          },
          [&](actors::effect::Start& effect) { start_operation(index, role, std::move(effect)); },
          [&](const actors::effect::Redirect& effect) { redirect(index, effect); },
          [&](const actors::effect::Drained&) { drained(index, role); },
          [&](const actors::effect::Log& effect) {
            if (effect.level == actors::effect::Log::Level::warning && warnings_.size() < kMaxWarnings) {
              warnings_.push_back("node" + std::to_string(index) + ": " + effect.line);
            }
          },
          [&](const actors::effect::ForgetClient& effect) {
            const bool is_read = std::ranges::count(nodes_[index].slabs_read, effect.client) != 0;
            if (is_read && slab_listener_) slab_listener_(index, effect.client);
          },
          // Links between sharing hosts do not fail, and a coordinator that retires still answers.
          [](const base::OneOf<actors::effect::EndSession, actors::effect::Retire> auto&) {}},
      any);
}

void VirtualCluster::to_client(actors::ClientId client, std::shared_ptr<const local::LocalMessage> message) {
  const void* touches = state_of_client_ ? state_of_client_(client) : nullptr;
  events_.schedule(
      events_.now() + profile_.cpu.local_latency_ns,
      [this, client, message = std::move(message)] {
        if (client == this->client(rank_of(client))) to_client_(client, passed(*message));
      },
      touches);
}

bool VirtualCluster::is_local(size_t index, actors::NodeId to) const {
  return to == actors::kThisNode || (to == actors::kCoordinatorNode && nodes_[index].coordinator == index);
}

void VirtualCluster::send(size_t from, const actors::effect::Send& send, uint64_t bytes) {
  if (is_local(from, send.to)) {
    return offer(from, send.message.to, actors::event::Received{actors::kThisNode, send.message});
  }
  if (send.to >= actors::kFirstSharer) {
    return send_between(from, send.to - actors::kFirstSharer, passed(send.message), bytes, send.id);
  }
  const std::optional<Route> route = find_route(from, send.to);
  if (!route) return;
  const size_t to = route->to;
  const actors::WireMessage message = passed(send.message);
  if (listener_) listener_(from, to, message, bytes);
  if (trace_ != nullptr) trace_->sent(from, to, message);
  if (from == coordinator_) ++coordinator_costs_.messages_out, coordinator_costs_.bytes_out += bytes;
  if (to == coordinator_) ++coordinator_costs_.messages_in, coordinator_costs_.bytes_in += bytes;
  if (!hazards_.touches_links(events_.now())) {
    Sent* sent = sent_.take();
    *sent = {*route, message, bytes};
    return relays_.send(from, to, bytes, [this, sent] {
      arrive(*sent);
      sent->message.body.reset();
      sent_.give_back(sent);
    });
  }
  auto arrived = [this, sent = Sent{*route, message, bytes}] { arrive(sent); };
  const Hazards::Passage passage = hazards_.pass(from, to, events_.now());
  if (passage.is_lost) return;
  auto leave = [this, from, to, bytes, arrived = std::move(arrived)] {
    relays_.send(from, to, bytes, arrived);
  };
  if (passage.again) events_.schedule(*passage.again, leave);
  events_.schedule(passage.leaves, std::move(leave));
}

void VirtualCluster::arrive(const Sent& sent) {
  if (!exists(sent.route)) return;  // its session has ended; messages in transit are lost
  offer(sent.route.to, sent.message.to, actors::event::Received{sent.route.sender, sent.message}, sent.bytes);
}

// The message as it arrives, if a bit of its chunk flips on the way.
actors::WireMessage VirtualCluster::corrupted(size_t from, const actors::WireMessage& message) {
  const auto* data = std::get_if<actors::wire::ChunkData>(message.body.get());
  if (data == nullptr || payload_ == nullptr || data->chunk == nullptr) return message;
  const auto bit = hazards_.corrupt_bit(from, data->chunk->bytes.size() * 8, events_.now());
  if (!bit) return message;
  payload_->note_corrupt_chunk();
  auto chunk = std::make_shared<actors::Chunk>(*data->chunk);
  chunk->bytes[*bit / 8] ^= std::byte{1} << (*bit % 8);
  actors::wire::ChunkData arrives = *data;
  arrives.chunk = std::move(chunk);
  return {message.from, message.to, std::make_shared<const actors::WireBody>(std::move(arrives))};
}

// Messages between nodes of a shared load. Their links never fail here. A message that the receiver handles
// has left its sender. For any other message, SendDone follows when the receiver runs again or is considered
// lost.
void VirtualCluster::send_between(size_t from, size_t to, const actors::WireMessage& sent, uint64_t bytes,
                                  actors::SendId id) {
  const actors::WireMessage message = corrupted(from, sent);
  if (listener_) listener_(from, to, message, bytes);
  if (trace_ != nullptr) trace_->sent(from, to, message);
  shared_bytes_ += bytes;
  network_.send(from, to, bytes, [this, sender = life_of(from), message, bytes, life = life_of(to), id] {
    const actors::NodeId sender_id = actors::kFirstSharer + static_cast<uint32_t>(sender);
    if (lives(life)) {
      offer(static_cast<uint32_t>(life), message.to, actors::event::Received{sender_id, message}, bytes);
    }
    const Node& receiver = nodes_[static_cast<uint32_t>(life)];
    const actors::TimeNs lost =
        lives(life) && receiver.silent_since < 0 ? 0 : receiver.silent_since + kSilenceNs;
    const actors::TimeNs left = lives(life) ? std::min(lost, receiver.stalled_until) : lost;
    if (id == 0 || left <= events_.now()) return report_left(sender, message.from, id);
    events_.schedule(left, [this, sender, role = message.from, id] { report_left(sender, role, id); });
  });
}

void VirtualCluster::set_timer(size_t index, actors::RoleKind role, const actors::effect::SetTimer& set) {
  const uint64_t setting = ++settings_;
  std::vector<Timer>& timers = nodes_[index].timers;
  auto known = std::find_if(timers.begin(), timers.end(), [&](const Timer& timer) {
    return timer.timer == set.timer && timer.role == role;
  });
  if (known == timers.end()) {
    timers.push_back({role, set.timer, setting});
  } else {
    known->setting = setting;
  }
  events_.schedule(
      set.at,
      [this, index, setting] {
        std::vector<Timer>& now_set = nodes_[index].timers;
        auto found = std::find_if(now_set.begin(), now_set.end(),
                                  [&](const Timer& timer) { return timer.setting == setting; });
        if (found == now_set.end()) return;  // moved or cancelled
        const Timer timer = *found;
        now_set.erase(found);
        offer(index, timer.role, actors::event::TimerFired{timer.timer});
      },
      &nodes_[index]);
}

void VirtualCluster::start_operation(size_t index, actors::RoleKind role, actors::effect::Start start) {
  Running* running = operations_.take();
  running->node = index;
  running->role = role;
  running->id = start.id;
  running->threads = actors::traits_of(start.operation).threads;
  running->name = actors::traits_of(start.operation).name;
  if (paths_ != nullptr) paths_->requested(role, start.operation);
  if (const auto* write = std::get_if<actors::operation::WriteShard>(&start.operation)) {
    running->writes = write->key;
    if (!write->data.empty()) running->reads_slab = write->data.begin()->client;
    if (running->reads_slab != 0) nodes_[index].slabs_read.push_back(running->reads_slab);
  }
  if (running->is_bulk()) {
    running->fails = hazards_.try_operation(index, start.operation, events_.now());
    running->work = work_of(index, start.operation);
    const auto* write = std::get_if<actors::operation::WriteShard>(&start.operation);
    if (write != nullptr && write->in_parts && !write->data.empty()) {
      running->in_parts = std::make_unique<WriteInParts>(WriteInParts{*write, {}, {}});
    }
    const auto lost = write == nullptr ? std::nullopt : hazards_.lost_write(index, events_.now());
    if (lost) lose_write(*running, *write, *lost);
  } else {
    running->operation = waiting_operations_.take();
    *running->operation = std::move(start.operation);
  }
  run_operation(running);
}

void VirtualCluster::lose_write(Running& running, const actors::operation::WriteShard& write,
                                Hazards::LostWrite how) {
  running.work.finish = [this, finish = std::move(running.work.finish), key = write.key, rank = write.rank,
                         file = write.file, how] {
    const bool is_new = !root_->file_bytes(key, rank, file);
    Result<actors::OperationResult> result = finish();
    if (!is_new || !result.ok()) return result;
    const auto& written = std::get<storage::WrittenShard>(*result);
    std::optional<uint64_t> left;
    if (how == Hazards::LostWrite::too_short) left = written.size / 2;
    root_->lose_shard(key, rank, file, written.payload_bytes, left);
    if (payload_ != nullptr) payload_->lose_shard(key, rank, file, left);
    return result;
  };
}

void VirtualCluster::run_operation(Running* running) {
  Threads& mine = threads_of(*running);
  if (mine.free == 0) return mine.waiting.push_back(running);
  --mine.free;
  begin_operation(running);
}

// A write that runs makes progress, however slow the storage is, unless the disk hangs.
CountedRoot::Work VirtualCluster::measure_writes(size_t index,
                                                 const actors::operation::MeasureWrites& measure) const {
  const std::vector<AttemptKey>& writing = nodes_[index].writing;
  const bool writes = std::ranges::any_of(
      measure.keys, [&](const AttemptKey& key) { return std::ranges::find(writing, key) != writing.end(); });
  const auto hang = hazards_.hang(index, events_.now());
  const uint64_t amount = writes ? static_cast<uint64_t>(hang ? hang->since : events_.now()) : 0;
  return {{}, [amount] { return Result<actors::OperationResult>(actors::OperationResult(amount)); }};
}

// CountedRoot gives the costs. If bytes are stored too, the storage gives the result.
CountedRoot::Work VirtualCluster::work_of(size_t node, const actors::Operation& operation) {
  if (const auto* measure = std::get_if<actors::operation::MeasureWrites>(&operation)) {
    return measure_writes(node, *measure);
  }
  if (operation_listener_) operation_listener_(node, operation);
  CountedRoot::Work work = root_->begin(operation, is_coordinator(node), node, job_.generation);
  if (payload_ == nullptr) return work;
  uint64_t writes = 0;
  for (const StorageStep& step : work.steps) {
    if (step.kind == StorageStep::Kind::write) writes += step.count;
  }
  // Something that did not exist at the look may exist when the answer arrives; so look now.
  if (work.is_seen) {
    work.finish = [answer = payload_->carry_out(node, is_coordinator(node), operation, work.finish(),
                                                writes)] { return answer; };
    return work;
  }
  work.finish = [this, node, has_catalog = is_coordinator(node), operation, writes,
                 count = std::move(work.finish)] {
    Result<actors::OperationResult> stored =
        payload_->carry_out(node, has_catalog, operation, count(), writes);
    const auto* pin = stored.ok() ? std::get_if<std::shared_ptr<const storage::Mark>>(&*stored) : nullptr;
    if (pin != nullptr) root_->keep_pin(**pin);
    return stored;
  };
  return work;
}

void VirtualCluster::begin_operation(Running* running) {
  const size_t index = running->node;
  running->life = life_of(index);
  running->began = events_.now();
  if (running->writes) nodes_[index].writing.push_back(*running->writes);
  if (!running->is_bulk()) {
    actors::Operation* operation = std::exchange(running->operation, nullptr);
    running->work = work_of(index, *operation);
    const bool uses_storage = !std::holds_alternative<actors::operation::MeasureWrites>(*operation);
    if (uses_storage) running->fails = hazards_.try_operation(index, *operation, events_.now());
    const auto* publish = std::get_if<actors::operation::PublishDecision>(operation);
    const uint64_t more = publish == nullptr ? 0 : items_.to_commit(*publish).bytes;
    StorageSteps& steps = running->work.steps;
    if (more != 0) steps.insert(steps.begin(), {StorageStep::Kind::write, more});
    *operation = actors::Operation();
    waiting_operations_.give_back(operation);
  }
  if (running->in_parts) return begin_in_parts(running);
  storage_.run(index, running->work.prefix, std::move(running->work.steps),
               [this, running] { end_operation(running); });
}

// The bytes of the parts are stored one part at a time, and the header with what follows.
void VirtualCluster::begin_in_parts(Running* running) {
  StorageSteps& steps = running->work.steps;
  const auto bytes = std::ranges::find(steps, StorageStep::Kind::write, &StorageStep::kind);
  SHOAL_CHECK(bytes != steps.end() && part_writes_);
  for (const actors::SlabRange& range : running->in_parts->write.data.vector()) bytes->count -= range.bytes;
  running->in_parts->after.assign(bytes, steps.end());
  steps.erase(bytes, steps.end());
  storage_.run(running->node, running->work.prefix, std::move(steps), [this, running] {
    if (!lives(running->life)) return end_operation(running);
    store_parts(running);
  });
}

void VirtualCluster::store_parts(Running* running) {
  part_writes_->begin(
      running->node, running->in_parts->write,
      [this, running](uint64_t bytes, std::function<void()> stored) {
        storage_.run(running->node, running->work.prefix, {{StorageStep::Kind::write, bytes}},
                     std::move(stored));
      },
      [this, running](const PartsCopied& copied) {
        running->in_parts->copied = copied;
        if (!copied.why.ok()) return end_operation(running);
        storage_.run(running->node, running->work.prefix, std::move(running->in_parts->after),
                     [this, running] { end_operation(running); });
      });
}

Result<actors::OperationResult> VirtualCluster::end_in_parts(Running& running) {
  const actors::operation::WriteShard& write = running.in_parts->write;
  const PartsCopied& copied = running.in_parts->copied;
  if (payload_ != nullptr) payload_->parts_copied(copied);
  if (copied.why.ok()) return running.work.finish();
  const Status fails =
      copied.why.with_context("rank " + std::to_string(write.rank) + " cannot write " +
                              shard_file_name(write.rank, write.file) + " of " + to_string(write.key));
  if (payload_ == nullptr) return fails;
  return payload_->carry_out(running.node, is_coordinator(running.node), write, fails, 0);
}

void VirtualCluster::end_operation(Running* running) {
  const size_t index = running->node;
  if (const auto hang = hazards_.hang(index, events_.now()); running->writes && hang) {
    return events_.schedule(hang->until, [this, running] { end_operation(running); });
  }
  const bool is_small = !running->is_bulk();
  const bool is_alive = lives(running->life);
  if (trace_ != nullptr) {
    trace_->operation(index, running->began, events_.now(), running->name, running->fails);
  }
  if (!is_alive) {
    abandon(running->id, is_small, running->work);
  } else {
    const Status& fails = running->fails;
    if (!fails.ok()) abandon(running->id, is_small && fails.code() == Code::io, running->work);
    Result<actors::OperationResult> result = !fails.ok()         ? Result<actors::OperationResult>(fails)
                                             : running->in_parts ? end_in_parts(*running)
                                                                 : running->work.finish();
    offer(index, running->role, actors::event::OperationDone{running->id, std::move(result)});
  }
  Threads& mine = threads_of(*running);
  if (running->writes && is_alive) {
    std::vector<AttemptKey>& writing = nodes_[index].writing;
    writing.erase(std::ranges::find(writing, *running->writes));
  }
  if (running->reads_slab != 0 && is_alive) {
    std::vector<actors::ClientId>& slabs_read = nodes_[index].slabs_read;
    slabs_read.erase(std::ranges::find(slabs_read, running->reads_slab));
  }
  *running = Running();
  operations_.give_back(running);
  if (!is_alive) return;  // the threads now belong to another process
  ++mine.free;
  if (mine.waiting.empty()) return;
  Running* next = mine.waiting.pop_front();
  --mine.free;
  begin_operation(next);
}

}  // namespace shoal::sim
