# A command a task, with settings that learn it on two cores of a CPU; validation/results/tasks/learning.json has what
# each reaches, with several seeds. Run a line of it, or all: sh docs/examples/tasks.sh

shardes-train gymnasium:CartPole-v1
shardes-train gymnasium:CartPole-v1 --strategy seed
shardes-train gymnasium:Acrobot-v1 -n 64 --episodes 2 --lr 0.05 --generations 40 --normalize
shardes-train gymnasium:Pendulum-v1 -n 64 --episodes 4 --lr 0.05 --rank 4 --generations 160
shardes-train gymnasium:LunarLander-v3 -n 64 --episodes 4 --episode-length 400 --lr 0.05 --rank 4
shardes-train playground:CartpoleBalance -n 64 --generations 200
shardes-train playground:CartpoleSwingup -n 64 --generations 300
shardes-train playground:PendulumSwingup -n 64 --episodes 2 --lr 0.05 --generations 40
